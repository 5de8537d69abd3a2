"""The Gradio page: tabs, controls and wiring. What happens in the browser is in ``shell/page.js``.

A tab is a bar of controls above a player (a ``gr.HTML`` whose script hands its element to the shell).
Recorded runs are chosen and shown by the browser alone; Run asks Python for a ticket, and the shell then
follows the run itself.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI

from dominotree.errors import DominoTreeError
from dominotree.methods import METHODS
from viz import player
from viz.library import Library
from viz.quick_gradio import gr
from viz.sessions import LIVE_METHODS, Sessions
from viz.theme import theme

TITLE = "DominoTree Live"
DEFAULT_PROMPT = "Explain in three short sentences why the sky is blue."
COMPARED = ("dominotree", "ddtree")  # what Compare opens with

_serial = itertools.count(1)  # makes every answer differ, so that the browser notices each of them


def _player(tab: str) -> gr.HTML:
    """The place of a player. The template is constant: no text of a run ever passes through it."""
    return gr.HTML(
        value="",
        html_template=f'<div class="dt-player" data-tab="{tab}"></div>',
        js_on_load=(
            f"DominoPage.mount('{tab}', element.querySelector('.dt-player'), () => trigger('submit'));"
            f"watch('value', () => DominoPage.ticket('{tab}', props.value));"
        ),
        apply_default_css=False,
        elem_id=f"{tab}-player",
        elem_classes=["dt-player-block"],
    )


def _bar(tab: str) -> gr.HTML:
    """Status line: what is happening, and errors as one sentence."""
    return gr.HTML(
        value="",
        html_template='<p class="dt-status" role="status" aria-live="polite"></p>',
        js_on_load=f"DominoPage.mountStatus('{tab}', element.querySelector('.dt-status'));",
        apply_default_css=False,
        elem_classes=["dt-status-block"],
        scale=1,
    )


def _numbers(tab: str, sessions: Sessions) -> list[gr.Number | gr.Textbox]:
    """The settings of a live run, in the order of ``_setting_names``."""
    limits = sessions.limits
    with gr.Row(elem_id=f"{tab}-settings", elem_classes=["dt-settings"]):
        return [
            gr.Number(16, label=f"Budget (nodes, 1–{limits.budget})", precision=0, min_width=110),
            gr.Number(64, label="Top-M candidates", precision=0, min_width=110),
            gr.Number(0, label="Temperature", step=0.1, min_width=110),
            gr.Textbox("", label="Seed (blank: random)", placeholder="random", max_lines=1, min_width=110),
            gr.Number(128, label=f"New tokens (1–{limits.max_new_tokens})", precision=0, min_width=110),
        ]


_setting_names = ("budget", "top_m", "temperature", "seed", "max_new_tokens")


def _split(variant: Any) -> tuple[Any, int | None]:
    """Method and budget of a choice in Compare: "dominotree@64" -> ("dominotree", 64); no budget: None."""
    method, _, budget = str(variant).partition("@")
    return (method, int(budget)) if budget.isdecimal() else (variant, None)


def _ticket(
    sessions: Sessions,
    methods: list[Any],
    prompt: Any,
    values: tuple[Any, ...],
    request: gr.Request,
    budgets: list[Any] | None = None,
) -> str:
    """Queue a run for the visitor of this request; what the browser needs to follow it, or a sentence.

    ``budgets``: one for each method, instead of that in ``values``.
    """
    visitor = request.session_hash or f"direct-{next(_serial)}"
    shared = dict(zip(_setting_names, values, strict=True))
    wishes = [{"method": method, **shared} for method in methods]
    for wish, budget in zip(wishes, budgets or [], strict=False):
        wish["budget"] = budget
    try:
        job = sessions.submit(visitor, prompt, wishes)
    except DominoTreeError as error:
        return json.dumps({"serial": next(_serial), "error": str(error)})
    return json.dumps(
        {"serial": next(_serial), "token": job.token, "methods": [s["method"] for s in job.settings]}
    )


def _run_handler(sessions: Sessions) -> Callable[..., str]:
    """The handler of Run in Explore; the order of its arguments is that of the components wired to it."""

    def run(
        method: Any, prompt: Any, budget: Any, top_m: Any, heat: Any, seed: Any, new: Any, request: gr.Request
    ) -> str:
        return _ticket(sessions, [method], prompt, (budget, top_m, heat, seed, new), request)

    return run


def _compare_handler(sessions: Sessions) -> Callable[..., str]:
    """The handler of Run both in Compare. Budget is that of both; a method that decides round by round has its own cap."""

    def compare(
        left: Any, right: Any, prompt: Any, budget: Any, top_m: Any, heat: Any, seed: Any, new: Any,
        request: gr.Request,
    ) -> str:  # fmt: skip
        sides = [_split(side) for side in (left, right)]
        budgets = [
            own or (METHODS[m].budget if m in METHODS and METHODS[m].adaptive else budget) for m, own in sides
        ]
        return _ticket(
            sessions, [m for m, _ in sides], prompt, (budget, top_m, heat, seed, new), request, budgets
        )

    return compare


def _choices(groups: list[dict[str, Any]]) -> tuple[list[tuple[str, str]], str | None]:
    return [(group["title"], group["key"]) for group in groups], groups[0]["key"] if groups else None


def variants(groups: list[dict[str, Any]]) -> dict[str, str]:
    """What Compare offers: every live method, then what else is recorded (other methods, further budgets)."""
    recorded = {run["variant"]: run["title"] for group in groups for run in group["runs"]}
    return LIVE_METHODS | {name: recorded[name] for name in sorted(recorded) if name not in LIVE_METHODS}


def compared_group(groups: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The group that Compare opens with: it holds both methods; a recording on a GPU comes first."""
    both = [g for g in groups if set(COMPARED) <= {run["method"] for run in g["runs"]}]
    on_gpu = [g for g in both if g["device"].startswith("cuda")]
    return next(iter(on_gpu or both or groups), None)


def _live_controls(
    tab: str, sessions: Sessions, prompt: str, label: str, run_label: str, with_method: bool
) -> dict[str, Any]:
    """The right half of a bar: prompt, method, Settings, Run, Stop; ``numbers``: what Settings opens."""
    parts: dict[str, Any] = {}
    with gr.Column(elem_classes=["dt-live"], visible=sessions.engine.state != "off"):
        with gr.Row(elem_classes=["dt-group"]):
            parts["prompt"] = gr.Textbox(
                prompt, label=label, lines=1, max_lines=5, scale=1, min_width=220, elem_id=f"{tab}-prompt"
            )
            if with_method:
                parts["method"] = gr.Dropdown(
                    [(title, name) for name, title in LIVE_METHODS.items()],
                    value="dominotree",
                    label="Run it with",
                    filterable=False,
                    scale=0,
                    min_width=190,
                    elem_id=f"{tab}-method",
                )
            parts["more"] = gr.Button("Settings", scale=0, min_width=88, elem_id=f"{tab}-more")
            parts["run"] = gr.Button(
                run_label, variant="primary", scale=0, min_width=76, elem_id=f"{tab}-run"
            )
            parts["stop"] = gr.Button(
                "Stop",
                interactive=False,  # the shell enables it while a run goes on
                scale=0,
                min_width=68,
                elem_id=f"{tab}-stop",
                elem_classes=["dt-stop"],
            )
        parts["numbers"] = _numbers(tab, sessions)
    return parts


def _phone(tab: str, live: bool) -> None:
    """What a narrow page shows instead of the controls that are used less; its buttons open them."""
    run = '<button type="button" data-opens="live" aria-expanded="false">Run a prompt of your own</button>'
    gr.HTML(
        value="",
        html_template=(
            f'<div class="dt-phone">{run if live else ""}'
            '<button type="button" data-opens="files" aria-expanded="false">Files</button></div>'
        ),
        js_on_load=f"DominoPage.mountPhone('{tab}', element.querySelector('.dt-phone'));",
        apply_default_css=False,
        elem_classes=["dt-phone-block"],
    )


def _footer(tab: str) -> None:
    """Status and files of the run that is shown."""
    with gr.Row(elem_classes=["dt-bar-2"]):
        _bar(tab)
        with gr.Row(elem_classes=["dt-files"]):
            for title, what in (
                ("Rounds CSV", "rounds.csv"),
                ("Nodes CSV", "nodes.csv"),
                ("Trace JSON", "trace.json"),
                ("HTML", "run.html"),
            ):
                button = gr.Button(
                    title, size="sm", scale=0, min_width=60, elem_id=f"{tab}-{what.replace('.', '-')}"
                )
                button.click(None, js=f"() => {{ DominoPage.download('{tab}', '{what}'); }}")
            if tab == "explore":
                button = gr.Button("Import", size="sm", scale=0, min_width=60, elem_id="explore-import")
                button.click(None, js="() => { DominoPage.chooseImport('explore'); }")


def _explore(library: Library, sessions: Sessions) -> None:
    groups = library.menu()
    keys, first = _choices(groups)
    with gr.Row(elem_classes=["dt-bar"]):
        with gr.Row(elem_classes=["dt-group", "dt-recorded"]):
            group = gr.Dropdown(
                keys,
                value=first,
                label="Watch a run",
                filterable=False,
                min_width=120,
                elem_id="explore-group",
            )
            run = gr.Dropdown(
                [(r["title"], r["id"]) for r in groups[0]["runs"]] if groups else [],
                value=groups[0]["runs"][0]["id"] if groups else None,
                label="Recorded with",
                filterable=False,
                min_width=210,
                elem_id="explore-run-choice",
            )
        prompt = groups[0]["prompt"] if groups else DEFAULT_PROMPT
        _phone("explore", sessions.engine.state != "off")
        live = _live_controls(
            "explore", sessions, prompt, "Or run a prompt of your own", "Run", with_method=True
        )
    _footer("explore")
    player = _player("explore")

    group.input(
        None, [group, run], [run, live["prompt"]], js="(g, r) => DominoPage.pickGroup('explore', g, r)"
    )
    run.input(None, [run], None, js="(r) => { DominoPage.pickRun('explore', r); }")
    player.submit(None, None, [group, run, live["prompt"]], js="() => DominoPage.menu('explore')")
    live["more"].click(None, js="() => { DominoPage.toggleSettings('explore'); }")
    budget = live["numbers"][0]
    live["method"].input(None, [live["method"], budget], [budget], js="(m, b) => DominoPage.budgetFor(m, b)")
    gr.on(
        [live["run"].click, live["prompt"].submit],
        _run_handler(sessions),
        [live["method"], live["prompt"], *live["numbers"]],
        [player],
        js="(...values) => DominoPage.starting('explore', values)",
        queue=False,
        preprocess=False,
        postprocess=False,
        show_progress="hidden",
        trigger_mode="multiple",
        concurrency_limit=None,
        api_name="run",
        api_visibility="private",
    )


def _compare(library: Library, sessions: Sessions) -> None:
    groups = library.menu()
    keys, _ = _choices(groups)
    opened = compared_group(groups)
    methods = [(title, name) for name, title in variants(groups).items()]
    with gr.Row(elem_classes=["dt-bar"]):
        with gr.Row(elem_classes=["dt-group", "dt-recorded"]):
            group = gr.Dropdown(
                keys,
                value=opened["key"] if opened else None,
                label="Watch two runs",
                filterable=False,
                min_width=120,
                elem_id="compare-group",
            )
            sides = [
                gr.Dropdown(
                    methods,
                    value=method,
                    label=side,
                    filterable=False,
                    min_width=160,
                    elem_id=f"compare-{side.lower()}",
                )
                for side, method in zip(("Left", "Right"), COMPARED, strict=True)
            ]
        prompt = opened["prompt"] if opened else DEFAULT_PROMPT
        _phone("compare", sessions.engine.state != "off")
        live = _live_controls(
            "compare", sessions, prompt, "Or run both on a prompt of your own", "Run both", with_method=False
        )
    _footer("compare")
    player = _player("compare")

    group.input(None, [group], [live["prompt"]], js="(g) => DominoPage.pickPair('compare', {group: g})")
    player.submit(None, None, [group, *sides, live["prompt"]], js="() => DominoPage.menu('compare')")
    for index, side in enumerate(sides):
        side.input(
            None,
            [side],
            None,
            js=f"(m) => {{ DominoPage.pickPair('compare', {{side: {index}, method: m}}); }}",
        )
    live["more"].click(None, js="() => { DominoPage.toggleSettings('compare'); }")
    gr.on(
        [live["run"].click, live["prompt"].submit],
        _compare_handler(sessions),
        [*sides, live["prompt"], *live["numbers"]],
        [player],
        js="(...values) => DominoPage.starting('compare', values)",
        queue=False,
        preprocess=False,
        postprocess=False,
        show_progress="hidden",
        trigger_mode="multiple",
        concurrency_limit=None,
        api_name="compare",
        api_visibility="private",
    )


def _part(name: str) -> Callable[[Library, Sessions], None]:
    """Lessons or Benchmarks: script, style and data are fetched when the tab is first opened."""

    def build_part(library: Library, sessions: Sessions) -> None:
        gr.HTML(
            value="",
            html_template='<div class="dt-player"></div>',
            js_on_load=f"DominoPage.openPart('{name}', element.querySelector('.dt-player'));",
            apply_default_css=False,
            elem_id=f"{name}-place",
            elem_classes=["dt-player-block"],
        )

    return build_part


#: The tabs in order: title -> what builds it. Present finds its place here.
TABS: dict[str, Callable[[Library, Sessions], None]] = {
    "Explore": _explore,
    "Compare": _compare,
    "Lessons": _part("lessons"),
    "Benchmarks": _part("benchmarks"),
}


def build(library: Library, sessions: Sessions) -> gr.Blocks:
    """The whole page."""
    with gr.Blocks(title=TITLE, analytics_enabled=False, fill_width=True) as blocks:
        gr.HTML(
            value="",
            html_template=(
                '<header class="dt-head"><h1>DominoTree <span>Live</span></h1>'
                '<div class="dt-head-right"><span class="dt-badge" role="status"></span>'
                '<button type="button" class="dt-theme" aria-label="Switch between light and dark"></button>'
                "</div></header>"
            ),
            js_on_load="DominoPage.mountHeader(element);",
            apply_default_css=False,
            elem_classes=["dt-head-block"],
        )
        with gr.Tabs(elem_classes=["dt-tabs"]):
            for title, build_tab in TABS.items():
                with gr.Tab(title, id=title.lower(), elem_classes=["dt-tab"]):
                    build_tab(library, sessions)
    return blocks


def head(
    library: Library, sessions: Sessions, version: str, public_url: str = "", static: bool = False
) -> str:
    """The top of the HTML: the player and the first recorded run begin to load before Gradio does.

    ``public_url``: the page's address for others, in QR codes and copied links; "": where the visitor opened it.
    ``static``: the page is a folder of files (viz/site.py), its recorded runs are gzipped.
    """
    groups = library.menu()
    config = {
        "version": version,
        "groups": groups,
        "compared": COMPARED,
        "budgets": {name: METHODS[name].budget for name in LIVE_METHODS},
        "comparedGroup": (compared_group(groups) or {}).get("key"),
        "methods": variants(groups),
        "live": sessions.engine.state != "off",
        "importBytes": sessions.limits.import_bytes,
        "importUnpacked": sessions.limits.import_unpacked,
        "static": static,
        "publicUrl": public_url,
    }
    embedded = json.dumps(config, ensure_ascii=False).replace("<", "\\u003c")
    kind = "json.gz" if static else "json"
    first = f"recorded/{groups[0]['runs'][0]['id']}.{kind}?v={version}" if groups else ""
    lines = [
        '<base href="./" />',
        f"<title>{TITLE}</title>",
        '<meta name="color-scheme" content="light dark" />',
        '<link rel="icon" href="shell/icon.svg" type="image/svg+xml" />',
        f'<link rel="preload" href="{first}" as="fetch" crossorigin />' if first else "",
        player.head(f"player/{version}/", defer=True),
        f'<link rel="stylesheet" href="shell/{version}/page.css" />',
        f'<script type="application/json" id="dt-config">{embedded}</script>',
        *(f'<script defer src="shell/{version}/{name}.js"></script>' for name in ("page", "kept", "links")),
    ]
    return "\n".join(line for line in lines if line)


def mount(app: FastAPI, blocks: gr.Blocks) -> None:
    """Put the Blocks at the root of ``app``, with everything off that a page for visitors does not need."""
    gr.mount_gradio_app(
        app,
        blocks,
        path="/",
        footer_links=[],
        run_history=False,
        show_error=False,
        max_file_size="1kb",
        ssr_mode=False,
        enable_monitoring=False,
        mcp_server=False,
        pwa=False,
        theme=theme(),
    )
