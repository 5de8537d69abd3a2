/* Saving what is on the screen, without a server: tables, the trace, or one HTML file that shows the run anywhere.

   await DominoPlayer.saving.save(runs, "rounds.csv"|"nodes.csv"|"trace.json"|"run.html"): hands the files to the browser
   await DominoPlayer.saving.html(runs) -> text of the one file; runs: a player's Run objects, two for a comparison
   DominoPlayer.standalone(options) -> the player of such a file, which viz.player.standalone writes, too */
(function (DP) {
  "use strict";
  const HERE = document.currentScript?.src ? new URL("./", document.currentScript.src).href : null; // null: this is such a file

  const served = (run) => ({ ...DP.tables.traceOf(run), layout: run.layout });

  /** A text as gzip in base64, and back. */
  async function packed(text) {
    const blob = await new Response(new Blob([text]).stream().pipeThrough(new CompressionStream("gzip"))).blob();
    const reader = new FileReader();
    await new Promise((done) => {
      reader.onload = done;
      reader.readAsDataURL(blob);
    });
    return reader.result.replace(/^[^,]*,/, "");
  }
  const unpacked = (text) => DP.reading.unpacked(new Blob([Uint8Array.from(atob(text), (char) => char.charCodeAt(0))]));

  function stem(run) {
    const method = run.method.replace(/[^a-z0-9_-]/g, "").slice(0, 40) || "run";
    return `dominotree-${method}-${run.id}`;
  }

  /** One HTML file: the player's own files, as this page has loaded them, and the runs. */
  async function html(runs) {
    const text = async (url) => {
      const answer = await fetch(url, { cache: "force-cache" });
      if (!answer.ok) throw new Error(`A part of the player could not be loaded (${answer.status}).`);
      return answer.text();
    };
    const mine = (list, url) => [...list].map(url).filter((found) => found?.startsWith(HERE));
    const styles = await Promise.all(mine(document.querySelectorAll("link[rel=stylesheet]"), (link) => link.href).map(text));
    const scripts = await Promise.all(mine(document.scripts, (script) => script.src).map(text));
    const title = `${runs.map((run) => run.title).join(" and ")}: ${runs[0].prompt.text || ""}`.slice(0, 80);
    const escape = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };
    const script = (code) => `<script>\n${code.replaceAll("</script", "<\\/script")}\n</script>`;
    return [
      "<!doctype html>",
      '<html lang="en"><head><meta charset="utf-8" />',
      '<meta name="viewport" content="width=device-width, initial-scale=1" />',
      `<title>${title.replace(/[&<>]/g, (sign) => escape[sign])}</title>`,
      ...styles.map((style) => `<style>\n${style}\n</style>`),
      "<style>body{margin:0}.dp{min-height:100vh}</style></head>",
      '<body><main id="player"></main>',
      ...scripts.map(script),
      `<script type="application/gzip" id="runs">${await packed(JSON.stringify(runs.map(served)))}</script>`,
      script("const p = DominoPlayer.standalone();"),
      "</body></html>",
    ].join("\n");
  }

  function hand(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  async function save(runs, what) {
    if (what === "run.html") return hand(`${stem(runs[0])}.html`, "text/html", await html(runs));
    for (const run of runs) {
      const trace = DP.tables.traceOf(run);
      if (what === "trace.json") hand(`${stem(run)}.json`, "application/json", JSON.stringify(trace));
      else hand(`${stem(run)}-${what}`, "text/csv", what === "rounds.csv" ? DP.tables.rounds(trace) : DP.tables.nodes(trace));
    }
  }

  /** Show the runs that this file holds, as soon as they are unpacked. */
  DP.standalone = function (options = {}) {
    let runs = [];
    const kinds = { "rounds-csv": "rounds.csv", "nodes-csv": "nodes.csv", json: "trace.json" };
    const player = DP.mount(document.getElementById("player"), {
      hash: true,
      library: {
        run: async (id) => {
          const found = runs.find((run) => run.run_id === id);
          if (!found) throw new Error(`The run ${id} is not in this file.`);
          return structuredClone(found);
        },
        partner: (run) => runs.find(({ run_id }) => run_id !== run.id)?.run_id || null,
      },
      onEvent: (event, { kind, run_id }) => event === "download" && save(player.panes.map((pane) => pane.run).filter((run) => run.id === run_id), kinds[kind]),
      ...options,
    });
    const asked = DP.readHash();
    player.clear("");
    unpacked(document.getElementById("runs").textContent)
      .then((text) => {
        runs = JSON.parse(text);
        player.load(runs[0]);
        if (runs.length > 1) player.compare(runs[0], runs[1]);
        player.presenter.arrive(asked);
      })
      .catch((error) => player.setError(`The run in this file cannot be shown: ${error.message}.`));
    return player;
  };

  DP.saving = { save, html };
})((window.DominoPlayer = window.DominoPlayer || {}));
