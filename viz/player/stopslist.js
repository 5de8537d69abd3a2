/* The list of stops beside the player, to prepare a talk: add the view on the screen, order, note, delete, share. */
(function (DP) {
  "use strict";
  const { h, plural } = DP.parts;

  class StopsList {
    /** `presenter` names views and shows them; see present.js. */
    constructor(presenter) {
      this.presenter = presenter;
      const button = (name, title, act) => h(`button.${name}`, { type: "button", onclick: act }, title);
      this.title = h("h3", { tabindex: "-1" }, "Stops of a talk");
      this.hint = h("p.stops-hint");
      this.banner = h("div.stops-banner", { role: "status", hidden: true });
      this.add = button("stops-main", "Add this view as a stop", () => this.addView());
      this.list = h("ol.stops-list");
      this.start = button("stops-main", "Present", () => this.present());
      this.copy = button("stops-button", "Copy link", () => this.copyLink());
      this.save = button("stops-button", "Save file", () => this.saveFile());
      this.open = button("stops-button", "Open file", () => this.chooseFile());
      this.empty = button("stops-button", "Remove all", () => this.removeAll());
      this.link = h("input.stops-link", { type: "text", readonly: true, "aria-label": "Link to these stops", hidden: true, onfocus: () => this.link.select() });
      this.message = h("p.stops-message", { role: "status" });
      const close = h("button.stops-close", { type: "button", "aria-label": "Close the list of stops", onclick: () => this.show(false) }, "✕");
      this.root = h(
        "section.stops",
        { popover: "manual", hidden: true, "aria-label": "Stops of a talk" },
        h("header", null, this.title, close),
        this.hint,
        this.banner,
        this.add,
        this.list,
        h("footer", null, this.start, this.copy, this.save, this.open, this.empty),
        this.link,
        this.message,
      );
      this.root.addEventListener("keydown", (event) => event.key === "Escape" && this.show(false));
      this.opener = h("button.stops-open", { type: "button", "aria-expanded": "false", "data-tip": "Prepare a talk: a list of views, with notes", onclick: () => this.show(this.root.hidden) }, "Stops");
      this.onChange = () => this.changed();
      DP.stops.addEventListener("change", this.onChange);
      DP.stops.ready.then(() => this.changed());
      this.changed();
    }

    show(on) {
      this.root.hidden = !on;
      this.opener.setAttribute("aria-expanded", String(on));
      if (this.root.showPopover) on ? this.root.showPopover() : this.root.matches(":popover-open") && this.root.hidePopover();
      if (on) {
        this.draw();
        this.title.focus();
        if (DP.stops.list.length) DP.stops.use();
      } else this.opener.focus();
    }

    changed() {
      const { list } = DP.stops;
      this.opener.textContent = list.length ? `Stops · ${list.length}` : "Stops";
      if (!this.root.hidden && !this.writing) this.draw();
    }

    /** The view on the screen is another one: which stop it is, and whether it can be added. */
    moved() {
      if (this.root.hidden) return;
      const here = this.presenter.here();
      [...this.list.children].forEach((item, k) => (k === here ? item.setAttribute("aria-current", "true") : item.removeAttribute("aria-current")));
      this.add.disabled = !this.presenter.stop();
    }

    draw() {
      const { list, borrowed, own, trouble } = DP.stops;
      this.hint.textContent = list.length
        ? `${plural(list.length, "stop")}, stepped through with one key. Notes are for the speaker's window (n).`
        : "A talk is a list of views. Go to a run, a round and a scoring that you want to show, and add it.";
      this.banner.hidden = !borrowed && !trouble;
      this.banner.replaceChildren(
        h("p", null, trouble || `These stops came with a link${own ? `; your own ${plural(own, "stop")} ${own === 1 ? "is" : "are"} kept` : ""}.`),
        ...(borrowed
          ? [
              h("button.stops-button", { type: "button", onclick: () => DP.stops.keep() }, own ? "Replace mine" : "Keep them"),
              ...(own ? [h("button.stops-button", { type: "button", onclick: () => DP.stops.mine() }, "Use mine")] : []),
            ]
          : []),
      );
      this.list.replaceChildren(...list.map((stop, k) => this.item(stop, k, list.length)));
      for (const b of [this.start, this.copy, this.save, this.empty]) b.disabled = !list.length;
      this.link.hidden = true;
      this.moved();
      for (const note of this.list.querySelectorAll("textarea")) fit(note);
    }

    item(stop, k, count) {
      const name = this.presenter.nameOf(stop);
      const tool = (label, sign, act, disabled) => h("button.stops-tool", { type: "button", "aria-label": `${label}: ${name}`, title: label, disabled, onclick: act }, sign);
      const note = h("textarea.stops-note", { rows: 1, placeholder: "Note for the speaker", "aria-label": `Note: ${name}`, maxlength: 2000 });
      note.value = stop.note;
      note.addEventListener("input", () => {
        fit(note);
        this.writing = true; // the list on the screen is right already
        DP.stops.note(k, note.value);
        this.writing = false;
      });
      const move = (to) => () => {
        DP.stops.move(k, to);
        this.list.children[to].querySelectorAll(".dp-stops-tool")[to < k ? 0 : 1].focus();
      };
      return h(
        "li",
        null,
        h("div.stops-row", null, h("button.stops-name", { type: "button", onclick: () => this.go(k) }, `${k + 1}. ${name}`), tool("Earlier", "↑", move(k - 1), k === 0), tool("Later", "↓", move(k + 1), k === count - 1), tool("Delete", "✕", () => this.undoable(() => DP.stops.remove(k)))),
        note,
      );
    }

    // ---- actions

    addView() {
      const stop = this.presenter.stop();
      if (!stop) return;
      this.attempt(() => {
        const k = DP.stops.add(stop);
        this.say(this.presenter.player.comparison.racing ? `Added as round ${stop.round}, where the race stands: a talk has no race.` : "");
        this.list.children[k]?.scrollIntoView({ block: "nearest" });
        this.list.children[k]?.querySelector("textarea").focus({ preventScroll: true });
      });
    }

    async go(k) {
      try {
        DP.stops.at = k;
        await this.presenter.show(DP.stops.list[k]);
        this.say("");
        this.moved();
      } catch (error) {
        this.say(error.message);
      }
    }

    async present() {
      this.show(false);
      this.presenter.byStop = true;
      DP.stops.at = 0;
      await this.go(0);
      this.presenter.enter();
    }

    async copyLink() {
      const text = await DP.link.pack(DP.stops.list);
      const { note, title, ...first } = DP.stops.list[0];
      const hash = DP.link.encode({ ...first, stops: text });
      const link = this.presenter.library.link ? this.presenter.library.link(hash) : DP.address.href({ ...first, stops: text });
      this.link.value = link;
      this.link.hidden = false;
      try {
        await navigator.clipboard.writeText(link);
        this.say("Copied. Whoever opens it gets the stops and their notes.");
      } catch {
        this.link.select();
        this.say("Copy it from the field: this browser does not let the page do it. It holds the stops and their notes.");
      }
    }

    saveFile() {
      const link = h("a", { href: URL.createObjectURL(new Blob([DP.stops.file()], { type: "application/json" })), download: "dominotree-stops.json" });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    }

    chooseFile() {
      const input = h("input", { type: "file", accept: ".json,application/json" });
      input.addEventListener("change", async () => {
        const file = input.files[0];
        if (!file) return;
        if (file.size > 1 << 20) return this.say("This file is too large to be a list of stops.");
        const text = await file.text();
        this.attempt(() => {
          DP.stops.open(text);
          this.say(`${plural(DP.stops.list.length, "stop")} from ${file.name}.`);
        });
      });
      input.click();
    }

    removeAll() {
      this.undoable(() => DP.stops.clear());
    }

    /** Take stops away, and offer to put them back. */
    undoable(remove) {
      const list = [...DP.stops.list];
      remove();
      this.message.replaceChildren(`${plural(list.length - DP.stops.list.length, "stop")} removed. `, h("button.stops-button", { type: "button", onclick: () => (DP.stops.replace(list), this.say("")) }, "Undo"));
    }

    attempt(act) {
      try {
        act();
      } catch (error) {
        this.say(error.message);
      }
    }

    say(text) {
      this.message.textContent = text;
    }

    destroy() {
      DP.stops.removeEventListener("change", this.onChange);
      this.root.remove();
    }
  }

  /** As high as what is written in it. */
  function fit(note) {
    note.style.height = "auto";
    note.style.height = `${note.scrollHeight + 2}px`;
  }

  Object.assign(DP.parts, { StopsList });
})((window.DominoPlayer = window.DominoPlayer || {}));
