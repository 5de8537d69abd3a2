/* The tree on the screen as a picture: Plotly's own export, in the colours of the theme, with a heading that says what
   it shows. PNG at twice the size of the screen, SVG with text that can be selected and searched. */
(function (DP) {
  "use strict";
  const { h, escapePlotly, plural, sum, SCORER_TITLES, FAMILY } = DP.parts;

  const HEAD = 58; // px over the tree for the two lines of the heading
  const LEAST = 760; // px across that the heading needs; a narrower tree stands at the left
  const SCALE = 2;

  /** "dominotree-dominotree-b1c2…-round-3-conditional": run, round and scorer, as tables and traces are named. */
  function nameOf({ run, k, scorer }) {
    const method = run.method.replace(/[^a-z0-9_-]/g, "").slice(0, 40) || "run";
    return ["dominotree", method, run.id || "live", "round", k + 1, ...(scorer === "verified" ? [] : [scorer])].join("-");
  }

  /** The heading: what a picture needs to stand alone on a slide. */
  function headingOf({ run, k, scorer }) {
    const round = run.rounds[k];
    const { settings, pair, header } = run;
    const own = scorer === run.ownScorer;
    const tree = scorer === "verified" ? [] : [`${SCORER_TITLES[scorer].toLowerCase()} tree${own ? "" : ", not the one verified"}`];
    return [
      `${run.title}, round ${k + 1} of ${run.size}: ${sum(round)}`,
      [...tree, ...(run.isTree && settings.budget ? [plural(settings.budget, "node")] : []), pair.target, header.machine, `run ${run.id || "live"}`].filter(Boolean).join(" · "),
    ];
  }

  /** The figure of a tree view with background and heading, as Plotly takes it. */
  function figureOf(tree) {
    const { g, kinds } = tree.current;
    const figure = tree.figure(g, kinds);
    const { bg, ink, soft } = tree.colours;
    const lines = headingOf(tree.current);
    const heading = (text, y, size, color) => ({
      text: escapePlotly(text), showarrow: false, xref: "paper", yref: "paper", x: 0, y: 1, xanchor: "left", yanchor: "top", xshift: 18, yshift: y, align: "left", font: { family: FAMILY, size, color },
    });
    return {
      // Labels as Plotly's own text: a picture is drawn once, and reads the same everywhere.
      data: figure.data.map((trace) => (trace.type === "tokens" ? { ...trace, type: "scatter" } : trace)),
      layout: {
        ...figure.layout,
        width: Math.max(LEAST, figure.layout.width),
        height: figure.layout.height + HEAD,
        margin: { l: 0, r: Math.max(0, LEAST - figure.layout.width), b: 0, t: HEAD },
        paper_bgcolor: bg,
        plot_bgcolor: bg,
        annotations: [heading(lines[0], HEAD - 8, 18, ink), heading(lines[1], HEAD - 34, 13, soft)],
      },
      config: { staticPlot: true },
    };
  }

  /** The picture of a tree view as a data URL. `format`: "png" or "svg". */
  const pictureOf = (tree, format) => Plotly.toImage(figureOf(tree), { format, scale: format === "png" ? SCALE : 1, width: null, height: null });

  /** Hand the browser a picture of each tree on the screen. */
  async function savePictures(panes, format) {
    for (const { tree } of panes) {
      if (!tree.current) continue;
      const link = h("a", { href: await pictureOf(tree, format), download: `${nameOf(tree.current)}.${format}` });
      link.click();
    }
  }

  /** "Save picture: PNG SVG", for the foot of a player. */
  function pictureButtons(player) {
    const button = (format) => h("button.link", { type: "button", "aria-label": `Save the tree as ${format.toUpperCase()}`, onclick: () => savePictures(player.panes, format) }, format.toUpperCase());
    return h("div.downloads.pictures", null, h("span", null, "Save the tree "), button("png"), button("svg"));
  }

  Object.assign(DP.parts, { pictureButtons, pictureOf, figureOf });
})((window.DominoPlayer = window.DominoPlayer || {}));
