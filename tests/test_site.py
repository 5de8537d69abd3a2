"""The static site and the one-file HTML as files: what is in them, where they may be written, the command line."""

from __future__ import annotations

import ast
import base64
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from page_tools import write_library
from trace_factory import make_trace

from dominotree import trace as tr
from dominotree.cli import main
from dominotree.errors import SettingsError
from viz import player, site
from viz.layout import served
from viz.library import Library
from viz.theme import ACCENT, theme

ROOT = Path(__file__).parents[1]
#: Names of languages, and links that a reader may follow: nobody is asked for them.
NAMES = re.compile(
    rb"https?://www\.w3\.org/(?:2000/svg|1999/xlink|1999/xhtml|2000/xmlns/?|XML/1998/namespace)|https://arxiv\.org/abs/"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return write_library(tmp_path_factory.mktemp("site") / "traces")


@pytest.fixture(scope="module")
def files(library: Library) -> dict[str, bytes]:
    return site.files(library)


def test_every_address_is_relative_and_every_file_is_there(files: dict[str, bytes], library: Library) -> None:
    page = files["index.html"].decode()
    addresses = re.findall(r'(?:href|src)="([^"]*)"', page)
    assert len(addresses) > 20
    for address in addresses:
        assert not re.match(r"[a-z]+:|/", address), address
        assert address == "./" or address.split("?")[0] in files, address
    assert {f"recorded/{run.run_id}.json.gz" for run in library.runs} <= set(files)
    for name, body in files.items():
        if name.endswith((".html", ".css", ".json")) or (name.endswith(".js") and "/vendor/" not in name):
            assert not re.search(rb"https?://", NAMES.sub(b"", body)), name


def test_the_page_names_no_machine_and_forbids_other_hosts(files: dict[str, bytes]) -> None:
    page = files["index.html"].decode()
    assert "default-src &#x27;self&#x27;" in page or "default-src 'self'" in page
    config = json.loads(re.search(r'id="dt-config">(.*?)</script>', page)[1])  # type: ignore[index]
    assert config["static"] is True and config["live"] is False
    assert str(ROOT) not in page and str(Path.home()) not in page


def test_recorded_runs_are_what_the_page_serves(files: dict[str, bytes], library: Library) -> None:
    run = library.runs[0]
    text = gzip.decompress(files[f"recorded/{run.run_id}.json.gz"]).decode()
    assert json.loads(text)["layout"] and tr.from_json(text).run_id == run.run_id


def test_a_new_export_takes_the_place_of_an_older_one_and_of_nothing_else(
    tmp_path: Path, library: Library, files: dict[str, bytes]
) -> None:
    folder = tmp_path / "new" / "site"
    assert site.write(folder, library) == sum(map(len, files.values()))
    stale = folder / "player" / "older-version" / "tree.js"
    stale.parent.mkdir()
    stale.write_text("old")
    (folder / "CNAME").write_text("example.org")  # the host's own file stays
    site.write(folder, library)
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert there == {*files, "CNAME"}
    assert not stale.parent.exists()

    other = tmp_path / "other"
    other.mkdir()
    (other / "index.html").write_text("<p>mine")
    with pytest.raises(SettingsError, match="holds other files"):
        site.write(other, library)
    assert [path.name for path in other.iterdir()] == ["index.html"]
    with pytest.raises(SettingsError, match="is a file"):
        site.write(other / "index.html", library)
    with pytest.raises(SettingsError, match="no recorded runs"):
        site.write(tmp_path / "empty", Library(other))


def test_the_sites_colours_are_those_of_the_theme() -> None:
    css = (ROOT / "viz" / "shell" / "site.css").read_text(encoding="utf-8")
    light, dark = (dict(re.findall(r"--([\w-]+): ([^;]+);", part)) for part in css.split(".dark {")[:2])
    wanted = theme()
    assert (light["primary-600"], light["primary-400"]) == (ACCENT.c600, ACCENT.c400)
    for values, suffix in ((light, ""), (dark, "_dark")):
        for name in ("body-text-color", "body-text-color-subdued", "border-color-primary", "input-border-color",
                     "input-background-fill", "body-background-fill"):  # fmt: skip
            given = str(getattr(wanted, name.replace("-", "_") + suffix))
            assert values[name].replace("#fff", "#ffffff") in (given, given.replace("#fff", "#ffffff")), name


def test_S10_one_html_file_holds_the_run_as_data(tmp_path: Path) -> None:
    trace = make_trace(3, 8, 1, vocabulary=[b"</script>", b"<script>alert(1)</script>", b"<!--", b"a", b"b"])
    trace.prompt["text"] = "</title><script>window.ran = 1</script>"
    tr.save(trace, tmp_path / "run.json.gz")
    assert main(["export", str(tmp_path / "run.json.gz"), "--html", str(tmp_path / "run.html")]) == 0
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "<script>window.ran" not in page and "<title>DominoTree: &lt;/title&gt;" in page
    assert not re.search(r"(?m)^<(?:script|link|img|base)[^>]+(?:src|href)=", page)
    data = re.search(r'(?m)^<script type="application/gzip" id="runs">([^<]*)<', page)
    assert data is not None
    (held,) = json.loads(gzip.decompress(base64.b64decode(data[1])))
    assert held == json.loads(tr.to_json(served(tr.load(tmp_path / "run.json.gz"))))
    with pytest.raises(ValueError, match="one run or two"):
        player.standalone()


def test_the_command_line_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run = tmp_path / "run.json.gz"
    tr.save(make_trace(2, 4), run)
    for words, said in (
        ([], "say what to make"),
        ([str(run)], "say what to make"),
        ([str(run), str(run), "--csv", str(tmp_path)], "--csv takes one run, not 2"),
        (["--html", str(tmp_path / "x.html")], "--html takes one run, or two to compare, not 0"),
        ([str(run), "--html", str(tmp_path)], "is a folder"),
        ([str(run), "--site", str(tmp_path / "s")], "--site shows a folder of runs"),
        (["--site", str(tmp_path)], "holds other files"),
    ):
        assert main(["export", *words]) == 2
        assert said in capsys.readouterr().err
    assert main(["export", str(run), str(run), "--html", str(tmp_path / "two.html")]) == 0
    assert main(["export", "--site", str(tmp_path / "site"), "--runs", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert str(tmp_path / "two.html") in said and "python -m http.server" in said
    assert (tmp_path / "site" / "index.html").is_file()


def test_the_engine_knows_the_page_only_inside_functions() -> None:
    for path in (ROOT / "dominotree").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & {"viz", "gradio", "plotly", "fastapi"}, path
    code = "import sys, dominotree.cli, dominotree.export; print(sorted(m for m in sys.modules if m.split('.')[0] in ('viz', 'gradio')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
