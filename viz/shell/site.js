/* The static site's own part: tabs, menus and buttons in place of the live page's. What they do is in page.js, which is
   loaded after this file; a tab's player is made when the tab is first opened. */
(() => {
  "use strict";
  const MENUS = { explore: ["explore-group", "explore-run-choice"], compare: ["compare-group", "compare-left", "compare-right"] };
  const menu = (id) => document.getElementById(id);
  const made = new Set();

  /** What page.js wants changed in a menu: {choices: [[title, value]], value}. */
  function change(select, { choices, value }) {
    if (choices) select.replaceChildren(...choices.map(([title, key]) => new Option(title, key)));
    if (value !== undefined) select.value = value;
  }
  const follow = (name) => DominoPage.menu(name).forEach((update, k) => MENUS[name][k] && change(menu(MENUS[name][k]), update));

  /** Make what stands in a tab. */
  function make(name) {
    if (made.has(name)) return;
    made.add(name);
    const panel = document.getElementById(`panel-${name}`);
    const place = panel.querySelector(".dt-player");
    if (!MENUS[name]) return void DominoPage.openPart(name, place);
    DominoPage.mountStatus(name, panel.querySelector(".dt-status"));
    DominoPage.mount(name, place, () => follow(name));
  }

  function select(tab) {
    for (const other of document.querySelectorAll(".dt-tabs [role=tab]")) {
      const on = other === tab;
      other.classList.toggle("selected", on);
      other.setAttribute("aria-selected", String(on));
      document.getElementById(other.getAttribute("aria-controls")).hidden = !on;
    }
    setTimeout(() => make(tab.dataset.tab)); // a link may open a tab before the last script is there
  }
  for (const tab of document.querySelectorAll(".dt-tabs [role=tab]")) tab.addEventListener("click", () => select(tab));

  const listen = (id, act) => menu(id).addEventListener("change", (event) => act(event.target.value));
  listen("explore-group", (group) => change(menu("explore-run-choice"), DominoPage.pickGroup("explore", group, menu("explore-run-choice").value)[0]));
  listen("explore-run-choice", (run) => DominoPage.pickRun("explore", run));
  listen("compare-group", (group) => DominoPage.pickPair("compare", { group }));
  ["compare-left", "compare-right"].forEach((id, side) => listen(id, (method) => DominoPage.pickPair("compare", { side, method })));
  for (const button of document.querySelectorAll("[data-save]"))
    button.addEventListener("click", () => DominoPage.download(button.parentElement.dataset.tab, button.dataset.save));
  menu("explore-import").addEventListener("click", () => DominoPage.chooseImport("explore"));

  // A menu that has the focus keeps the keys that it needs; ← and → step through the rounds as everywhere.
  addEventListener(
    "keydown",
    (event) => {
      if (event.target instanceof Element && event.target.matches(".dt-field select") && !["ArrowLeft", "ArrowRight"].includes(event.key)) event.stopPropagation();
    },
    true,
  );

  document.addEventListener("DOMContentLoaded", () => {
    DominoPage.mountHeader(document.querySelector(".dt-head"));
    select(document.querySelector(".dt-tabs [role=tab][aria-selected=true]"));
  });
})();
