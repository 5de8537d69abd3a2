"""Visitors' runs: queue, isolation, stopping, leaving, limits, import and export, over the real server."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pytest
from page_tools import RECORDED, ScriptedEngine, serving, until, write_library
from trace_factory import make_trace

from dominotree import trace as tr
from dominotree.errors import DominoTreeError, PromptError, SettingsError
from viz.library import Library
from viz.live import PairEngine
from viz.sessions import Job, Limits, NoEngine, Sessions, check_prompt, check_settings

ROOT = Path(__file__).parents[1]


@pytest.fixture
def rooms() -> Iterator[Any]:
    """Makes Sessions around an engine and closes them afterwards."""
    made = []

    def make(engine: Any, **limits: Any) -> Sessions:
        made.append(Sessions(engine, replace(Limits(), **limits)))
        return made[-1]

    yield make
    for sessions in made:
        sessions.close()


def gated(rounds: int = 3) -> tuple[ScriptedEngine, threading.Event]:
    """An engine that gives no round before the returned event is set."""
    engine, gate = ScriptedEngine(0, rounds), threading.Event()
    engine.gate = gate.wait  # type: ignore[assignment]
    return engine, gate


def one(method: str = "dominotree", **more: Any) -> list[dict[str, Any]]:
    return [{"method": method, **more}]


def heard(job: Job, sessions: Sessions, after: int = 0, most: int | None = None) -> list[dict[str, Any]]:
    """What a browser that follows ``job`` is told, up to ``most`` numbered events."""

    async def listen() -> list[dict[str, Any]]:
        found = []
        async for number, text in sessions.follow(job, after):
            if number is not None:
                found.append({"number": number, **json.loads(text)})
            if most is not None and len(found) >= most:
                break
        return found

    return asyncio.run(listen())


# --- queue ----------------------------------------------------------------------------------------------


def test_one_run_at_a_time_first_come_first_served(rooms: Any) -> None:
    engine = ScriptedEngine(0.002)
    sessions = rooms(engine)
    jobs = [sessions.submit(f"visitor {n}", f"prompt {n}", one()) for n in range(12)]
    until(lambda: all(job.over for job in jobs))
    assert engine.prompts == [f"prompt {n}" for n in range(12)]
    assert engine.most_at_once == 1
    assert {job.state for job in jobs} == {"done"}
    assert all(len(job.traces[0].rounds) == 5 for job in jobs)


def test_place_and_seconds_fall_as_the_queue_moves(rooms: Any) -> None:
    engine, gate = gated()
    sessions = rooms(engine)
    jobs = [sessions.submit(f"v{n}", "p", one(max_new_tokens=90)) for n in range(3)]
    until(lambda: jobs[0].state == "running")
    assert [sessions.place(job)[0] for job in jobs] == [0, 1, 2]
    seconds = [sessions.place(job)[1] for job in jobs]
    assert seconds[0] == 0 and seconds[2] == pytest.approx(2 * seconds[1]) and seconds[1] > 0
    gate.set()
    until(lambda: jobs[2].over)
    assert sessions.place(jobs[2]) == (0, 0)


def test_run_again_while_waiting_keeps_the_place_and_the_last_prompt_counts(rooms: Any) -> None:
    engine, gate = gated()
    sessions = rooms(engine)
    first = sessions.submit("ann", "first", one())
    until(lambda: first.state == "running")
    old = sessions.submit("bob", "old", one())
    last = sessions.submit("cid", "last", one())
    new = sessions.submit("bob", "new", one())
    assert old.state == "cancelled" and sessions.place(new)[0] == 1
    gate.set()
    until(lambda: last.over)
    assert engine.prompts == ["first", "new", "last"]


def test_run_right_after_stop_and_run_while_running(rooms: Any) -> None:
    engine = ScriptedEngine(0.02, rounds=200)
    sessions = rooms(engine)
    first = sessions.submit("ann", "first", one())
    until(lambda: first.traces and first.traces[0].rounds)
    sessions.stop(first.token)
    second = sessions.submit("ann", "second", one())  # at once, before the first has ended
    until(lambda: second.traces and second.traces[0].rounds)
    third = sessions.submit("ann", "third", one())  # without Stop: the running one gives way
    until(lambda: third.traces and third.traces[0].rounds)
    assert (first.state, second.state) == ("cancelled", "cancelled")
    assert engine.most_at_once == 1
    sessions.stop(third.token)
    until(lambda: third.over)


def test_stop_frees_the_engine_within_one_round(rooms: Any) -> None:
    engine = ScriptedEngine(0.05, rounds=400)
    sessions = rooms(engine)
    job = sessions.submit("ann", "p", one())
    until(lambda: job.traces and len(job.traces[0].rounds) > 1)
    pressed = time.monotonic()
    sessions.stop(job.token)
    until(lambda: job.over)
    assert time.monotonic() - pressed < 0.5
    assert job.traces[0].summary["stop_reason"] == "cancelled"
    assert heard(job, sessions)[-1] == {
        "number": len(job.events),
        "type": "end",
        "pane": 0,
        "state": "cancelled",
    }


def test_stop_of_a_waiting_run_takes_it_out_of_the_queue(rooms: Any) -> None:
    engine, gate = gated()
    sessions = rooms(engine)
    first = sessions.submit("ann", "first", one())
    until(lambda: first.state == "running")
    waiting = sessions.submit("bob", "never", one())
    sessions.stop(waiting.token)
    assert waiting.state == "cancelled" and sessions.load == 1
    gate.set()
    until(lambda: first.over)
    assert engine.prompts == ["first"]
    assert not sessions.stop("no such token")


def test_a_visitor_that_leaves_frees_place_and_engine(rooms: Any) -> None:
    engine = ScriptedEngine(0.05, rounds=100)
    sessions = rooms(engine, grace=0.2, grace_first=0.6)
    gone = sessions.submit("gone", "gone", one())
    never = sessions.submit("never came", "never", one())
    last = sessions.submit("here", "here", one(max_new_tokens=64))

    async def rounds_of(job: Job, most: int) -> int:
        seen = 0
        async for _, text in sessions.follow(job):
            seen += bool(text) and json.loads(text)["type"] == "round"
            if seen == most:
                break
        return seen

    async def both() -> list[int]:
        return await asyncio.gather(rounds_of(gone, 30), rounds_of(last, 2))

    # the second in the queue is given up while the first decodes
    assert asyncio.run(asyncio.wait_for(both(), 20)) == [30, 2]  # the first listener then closed its tab
    assert gone.state == "cancelled" and never.state == "cancelled"
    assert "never" not in engine.prompts


def test_a_browser_that_reconnects_misses_nothing_and_sees_nothing_twice(rooms: Any) -> None:
    sessions = rooms(ScriptedEngine(0.01, rounds=8))
    job = sessions.submit("ann", "p", one())
    first = heard(job, sessions, most=4)
    rest = heard(job, sessions, after=first[-1]["number"])
    both = first + rest
    assert [event["number"] for event in both] == list(range(1, len(both) + 1))
    assert [e["round"]["index"] for e in both if e["type"] == "round"] == list(range(1, 9))
    assert [e["type"] for e in both][:1] + [e["type"] for e in both][-2:] == ["start", "finish", "end"]
    # every token that a round shows has been sent by then
    known: set[str] = set()
    for event in both:
        known |= set(event.get("tokens", {}))
        if event["type"] == "round":
            assert {str(t) for t in event["round"]["nodes"]["token"]} <= known
            assert len(event["layout"]["x"]) == len(event["round"]["nodes"]["token"])


def test_compare_runs_two_methods_one_after_the_other(rooms: Any) -> None:
    engine = ScriptedEngine(0)
    sessions = rooms(engine)
    job = sessions.submit("ann", "same", [{"method": "dominotree"}, {"method": "ddtree"}])
    until(lambda: job.over)
    assert [t.header["settings"]["method"] for t in job.traces] == ["dominotree", "ddtree"]
    assert {e.pane for e in job.events if e.kind == "round"} == {0, 1}
    assert engine.most_at_once == 1
    with pytest.raises(SettingsError):
        sessions.submit("ann", "same", [{"method": "ar"}] * 3)


def test_a_run_waits_for_a_loading_engine_and_is_refused_by_a_failed_one(rooms: Any) -> None:
    engine = ScriptedEngine(0, state="loading")
    sessions = rooms(engine)
    job = sessions.submit("ann", "p", one())
    time.sleep(0.15)
    assert job.state == "waiting"
    engine.state = "ready"
    until(lambda: job.state == "done")
    engine.state, engine.message = "failed", "The model is not here. Recorded runs still work."
    with pytest.raises(DominoTreeError, match="Recorded runs still work"):
        sessions.submit("ann", "p", one())
    with pytest.raises(DominoTreeError, match="--replay-only"):
        rooms(NoEngine()).submit("ann", "p", one())


def test_runs_waiting_for_an_engine_that_fails_to_load_end_with_its_sentence(rooms: Any) -> None:
    engine = ScriptedEngine(0, state="loading")
    engine.run = NoEngine().run  # type: ignore[method-assign]
    sessions = rooms(engine)
    job = sessions.submit("ann", "p", one())
    engine.state = "failed"
    until(lambda: job.over)
    assert job.state == "failed"
    assert [e.data for e in job.events if e.kind == "error"] == [
        {"message": NoEngine.message, "refused": True}
    ]


def test_a_pair_that_cannot_be_loaded_is_one_sentence_and_recorded_runs_are_named() -> None:
    engine = PairEngine("no such pair")
    engine.start()
    until(lambda: engine.state == "failed", 60)
    assert "unknown pair 'no such pair'" in engine.message
    assert engine.message.endswith("Recorded runs still work.")


# --- isolation, failures, limits ------------------------------------------------------------------------


def test_S01_two_visitors_get_only_their_own_rounds(rooms: Any) -> None:
    engine = ScriptedEngine(0.005)
    sessions = rooms(engine)
    jobs = {name: sessions.submit(name, f"prompt {name}", one()) for name in ("alpha", "beta")}
    until(lambda: all(job.over for job in jobs.values()))
    assert jobs["alpha"].token != jobs["beta"].token and len(jobs["alpha"].token) >= 32
    for name, other in (("alpha", "beta"), ("beta", "alpha")):
        told = json.dumps(heard(jobs[name], sessions))
        assert f"prompt {name}" in told and f"prompt {other}" not in told
        trace = jobs[name].snapshot(0)
        assert trace is not None and trace.prompt["text"] == f"prompt {name}"


def test_U32_a_failed_run_keeps_its_own_rounds_marked_and_touches_no_other(rooms: Any) -> None:
    engine = ScriptedEngine(0)
    sessions = rooms(engine)
    good = sessions.submit("ann", "good", one())
    until(lambda: good.over)
    before = tr.rounds_csv(good.snapshot(0))
    engine.fail_at = 3
    bad = sessions.submit("ann", "bad", one())
    until(lambda: bad.over)
    told = heard(bad, sessions)
    assert [e["type"] for e in told] == ["start", "round", "round", "error", "end"]
    assert "internal error (RuntimeError)" in told[-2]["message"] and told[-1]["state"] == "failed"
    partial = bad.snapshot(0)
    assert partial is not None and partial.summary["stop_reason"] == "error" and len(partial.rounds) == 2
    assert partial.prompt["text"] == "bad"
    assert tr.rounds_csv(good.snapshot(0)) == before
    engine.fail_at = None
    again = sessions.submit("ann", "again", one())  # the queue goes on
    until(lambda: again.state == "done")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"method": "magic"}, "magic"),
        ({"method": ["ar"]}, "ar"),
        ({"budget": 0}, "0"),
        ({"budget": 10**6}, "1000000"),
        ({"budget": 2.5}, "2.5"),
        ({"budget": True}, "True"),
        ({"budget": None}, "not empty"),
        ({"top_m": 0}, "0"),
        ({"top_m": 10**6}, "1000000"),
        ({"temperature": -1}, "-1"),
        ({"temperature": float("nan")}, "nan"),
        ({"temperature": float("inf")}, "inf"),
        ({"temperature": "warm"}, "warm"),
        ({"seed": -3}, "-3"),
        ({"seed": "abc"}, "abc"),
        ({"max_new_tokens": 0}, "0"),
        ({"max_new_tokens": 10**6}, "1000000"),
        ({"max_new_tokens": {"a": 1}}, "a"),
    ],
)
def test_S05_settings_out_of_range_get_one_sentence_that_names_the_value(change: dict, named: str) -> None:
    with pytest.raises(SettingsError) as refused:
        check_settings(Limits(), **{"method": "dominotree", **change})
    text = str(refused.value)
    assert named in text and text.endswith(".") and text.count(". ") == 0 and len(text) < 200


def test_settings_are_taken_as_a_browser_sends_them() -> None:
    taken = check_settings(
        Limits(), method="ar", budget=16.0, top_m="64", temperature="0.7", seed="7", max_new_tokens=1
    )
    assert taken == {
        "method": "ar", "budget": 16, "top_m": 64, "temperature": 0.7, "seed": 7, "max_new_tokens": 1,
    }  # fmt: skip


def test_S11_a_blank_seed_is_drawn_afresh() -> None:
    seeds = {check_settings(Limits(), method="ar", seed=blank)["seed"] for blank in (None, "", None, "")}
    assert len(seeds) == 4


@pytest.mark.parametrize("prompt", ["", "  \n\t", None, 7, ["x"], "x" * 8001])
def test_S05_bad_prompts_are_refused(prompt: Any) -> None:
    with pytest.raises(PromptError):
        check_prompt(prompt, Limits())


def test_S08_kept_runs_are_bounded_in_number_nodes_and_age(rooms: Any) -> None:
    sessions = rooms(ScriptedEngine(0, rounds=1), kept_runs=5, kept_nodes=10**9)
    jobs = [sessions.adopt([make_trace(1, 4, n)], "v") for n in range(12)]
    assert [sessions.find(job.token) is not None for job in jobs] == [False] * 7 + [True] * 5
    small = rooms(ScriptedEngine(0), kept_nodes=200)
    jobs = [small.adopt([make_trace(4, 16, n)], "v") for n in range(6)]
    assert small.find(jobs[-1].token) is not None and small.find(jobs[0].token) is None
    aged = rooms(ScriptedEngine(0), kept_seconds=-1)
    first, _second = (aged.adopt([make_trace(1, 4, n)], "v") for n in range(2))
    assert aged.find(first.token) is None


def test_a_full_queue_says_so(rooms: Any) -> None:
    engine, gate = gated()
    sessions = rooms(engine, waiting=2)
    first = sessions.submit("v0", "p", one())
    until(lambda: first.state == "running")
    sessions.submit("v1", "p", one())
    sessions.submit("v2", "p", one())
    with pytest.raises(DominoTreeError, match="2 runs are waiting"):
        sessions.submit("v3", "p", one())
    assert sessions.submit("v2", "changed my mind", one()).state == "waiting"
    gate.set()


# --- over the server ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Library, Sessions]]:
    library = write_library(tmp_path_factory.mktemp("site") / "traces")
    with (
        serving(library, ScriptedEngine(0.005), Limits(import_bytes=1 << 20)) as (address, sessions),
        httpx.Client(base_url=address, timeout=20) as client,
    ):
        yield client, library, sessions


def press_run(
    client: httpx.Client, *values: Any, handler: str = "run", session: str = "s1"
) -> dict[str, Any]:
    """Press Run as a direct caller of the private endpoint would."""
    answer = client.post(f"gradio_api/run/{handler}", json={"data": list(values), "session_hash": session})
    answer.raise_for_status()
    return json.loads(answer.json()["data"][0])


SETTINGS = (16, 64, 0, "", 64)


def finished(client: httpx.Client, token: str) -> list[dict[str, Any]]:
    with client.stream("GET", f"live/{token}/events") as stream:
        return [json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: ")]


def test_run_follow_and_export_over_http(site: Any) -> None:
    client, _, _ = site
    ticket = press_run(client, "dominotree", "hello", *SETTINGS)
    told = [e for e in finished(client, ticket["token"]) if e["type"] != "waiting"]
    assert [e["type"] for e in told] == ["start", *["round"] * 5, "finish", "end"]
    csv = client.get(f"live/{ticket['token']}/0/rounds.csv")
    rounds = pd.read_csv(io.StringIO(csv.text))
    assert list(rounds["run_id"].unique()) == [told[-2]["run_id"]] and len(rounds) == 5
    assert "attachment" in csv.headers["content-disposition"] and csv.headers["cache-control"] == "no-store"


def test_U21_every_export_is_of_the_run_that_is_asked_for(site: Any) -> None:
    client, _, _ = site
    tokens = []
    for method in ("dominotree", "ddtree"):
        tokens.append(press_run(client, method, method, *SETTINGS)["token"])
        finished(client, tokens[-1])
    for token, method in zip(tokens, ("dominotree", "ddtree"), strict=True):
        rounds = pd.read_csv(io.StringIO(client.get(f"live/{token}/0/rounds.csv").text))
        assert set(rounds["method"]) == {method}
        trace = tr.from_json(client.get(f"live/{token}/0/trace.json").content)
        assert trace.prompt["text"] == method and trace.run_id == rounds["run_id"][0]


def test_recorded_runs_are_served_compressed_cached_and_exported_by_the_same_code(site: Any) -> None:
    client, library, _ = site
    run = library.runs[0]
    answer = client.get(f"recorded/{run.run_id}.json")
    assert answer.headers["content-encoding"] == "gzip" and len(answer.json()["layout"]) == 12
    plain = client.get(f"recorded/{run.run_id}.json", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers and plain.json() == answer.json()
    page = client.get("").text
    version = json.loads(page.split('id="dt-config">')[1].split("</script>")[0])["version"]
    stamped = client.get(f"recorded/{run.run_id}.json?v={version}")
    assert "immutable" in stamped.headers["cache-control"]
    trace = tr.load(library.folder / run.file)
    assert client.get(f"recorded/{run.run_id}/rounds.csv").text == tr.rounds_csv(trace)
    assert client.get(f"recorded/{run.run_id}/nodes.csv").text == tr.nodes_csv(trace)
    again = tr.from_json(client.get(f"recorded/{run.run_id}/trace.json").content)
    assert again.run_id == run.run_id
    assert client.get("recorded/0000000000000000.json").status_code == 404


def test_import_gives_the_same_run_back(site: Any) -> None:
    client, library, _ = site
    body = (library.folder / library.runs[3].file).read_bytes()
    for sent in (body, gzip.decompress(body)):
        answer = client.post("import", content=sent).json()
        assert answer["trace"]["run_id"] == library.runs[3].run_id
        exported = client.get(f"live/{answer['token']}/0/trace.json").content
        assert tr.from_json(exported).run_id == library.runs[3].run_id


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"hello", 400),
        (b"\x1f\x8b broken", 400),
        (b'{"schema": "something else"}', 400),
        (b'{"schema": "dominotree.trace", "version": 99}', 400),
        (b'{"schema": "dominotree.trace", "version": 1, "rounds": NaN}', 400),
        (gzip.compress(b'{"schema":"dominotree.trace"' + b" " * (200 << 20)), 400),
        (b"x" * ((1 << 20) + 1), 413),
    ],
    ids=["empty", "text", "broken gzip", "foreign", "newer", "not strict", "gzip bomb", "too large"],
)
def test_S05_bad_imports_get_one_sentence(site: Any, body: bytes, status: int) -> None:
    client, _, _ = site
    started = time.monotonic()
    answer = client.post("import", content=body)
    assert answer.status_code == status
    assert 10 < len(answer.json()["error"]) < 300
    assert time.monotonic() - started < 5


def test_S05_direct_calls_are_held_to_the_same_limits(site: Any) -> None:
    client, _, sessions = site
    bad = [
        ("run", ("dominotree", "p", 16, 64, 0, "", 10**6)),
        ("run", ("dominotree", "p", 10**6, 64, 0, "", 64)),
        ("run", ("dominotree", "p", 16, 10**9, 0, "", 64)),
        ("run", ("dominotree", "p", 16, 64, -1, "", 64)),
        ("run", ("dominotree", "p", 16, 64, "NaN", "", 64)),
        ("run", ("dominotree", "", 16, 64, 0, "", 64)),
        ("run", ("dominotree", "p" * 10**5, 16, 64, 0, "", 64)),
        ("run", ({"x": 1}, ["p"], None, None, None, {}, True)),
        ("compare", ("dominotree", "ar", "p", 16, 64, 0, "", 10**6)),
    ]
    for handler, values in bad:
        started = time.monotonic()
        answer = press_run(client, *values, handler=handler)
        assert "token" not in answer and answer["error"].endswith("."), values
        assert time.monotonic() - started < 1
    assert sessions.load == 0


def test_S03_no_route_gives_files_away(site: Any) -> None:
    client, _, _ = site
    source = str(ROOT / "app.py")
    for path in (
        "gradio_api/file=/etc/passwd",
        "gradio_api/file=..%2f..%2f..%2fetc%2fpasswd",
        f"gradio_api/file={source}",
        f"gradio_api/file/{source}",
        "gradio_api/file=app.py",
        "gradio_api/proxy=http://127.0.0.1/",
        "gradio_api/custom_component/x/client/component/index.js",
    ):
        answer = client.get(path)
        assert answer.status_code == 403 and "root:" not in answer.text, path
    for path in (
        "gradio_api/file=../../../../etc/passwd",
        "player/../../app.py",
        "player/..%2f..%2fapp.py",
        "player/%2e%2e/%2e%2e/app.py",
        "shell//etc/passwd",
        "recorded/..%2f..%2fmanifest.json",
        "recorded/manifest.json",
        "live/../status.json",
        "static/../../../app.py",
        "assets/..%2f..%2f..%2fapp.py",
    ):
        answer = client.get(path)
        assert answer.status_code in (403, 404), path
        assert "argparse" not in answer.text and "root:" not in answer.text
    for guess in ("", "a", "0" * 32):
        assert client.get(f"live/{guess}/0/rounds.csv").status_code == 404
        assert client.get(f"live/{guess}/events").status_code == 404
    upload = client.post("gradio_api/upload", files={"files": ("x.txt", b"x")})
    assert upload.status_code == 403


def test_S08_200_exports_leave_nothing_in_the_temporary_folder(site: Any) -> None:
    client, library, _ = site
    token = press_run(client, "dominotree", "exported", *SETTINGS)["token"]
    finished(client, token)

    def size() -> int:
        places = [Path(tempfile.gettempdir()) / "gradio", Path(os.environ.get("GRADIO_TEMP_DIR", "/nowhere"))]
        return sum(f.stat().st_size for place in places for f in place.rglob("*") if f.is_file())

    before = size()
    for n in range(100):
        assert client.get(f"live/{token}/0/nodes.csv").status_code == 200
        assert client.get(f"recorded/{library.runs[n % 3].run_id}/rounds.csv").status_code == 200
    assert size() == before


def test_100_page_opens_and_100_run_clicks_at_once_give_no_error(site: Any) -> None:
    client, _, sessions = site

    async def crowd() -> tuple[list[int], list[dict[str, Any]]]:
        limits = httpx.Limits(max_connections=100)
        async with httpx.AsyncClient(base_url=client.base_url, timeout=60, limits=limits) as many:
            opens = await asyncio.gather(*(many.get("") for _ in range(100)))

            async def click(n: int) -> dict[str, Any]:
                data = ["dominotree", f"crowd {n}", 4, 64, 0, "", 16]
                sent = {"data": data, "session_hash": f"crowd{n}"}
                answer = await many.post("gradio_api/run/run", json=sent)
                assert answer.status_code == 200
                ticket = json.loads(answer.json()["data"][0])
                kinds = []
                async with many.stream("GET", f"live/{ticket['token']}/events") as stream:
                    async for line in stream.aiter_lines():
                        if line.startswith("data: "):
                            event = json.loads(line[6:])
                            kinds.append(event["type"])
                return {"kinds": kinds, **ticket}

            runs = await asyncio.gather(*(click(n) for n in range(100)))
            return [answer.status_code for answer in opens], runs

    statuses, runs = asyncio.run(crowd())
    assert statuses == [200] * 100
    assert len({run["token"] for run in runs}) == 100
    assert all(run["kinds"][-2:] == ["finish", "end"] and "error" not in run["kinds"] for run in runs)
    assert sessions.engine.most_at_once == 1  # type: ignore[attr-defined]


def test_pages_and_headers_name_no_other_host(site: Any) -> None:
    client, _, _ = site
    page = client.get("")
    assert (
        "http"
        not in page.text.split("<body")[0].replace("http://127.0.0.1", "").split("<script>window.gradio")[0]
    )
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert client.get("status").json() == {"engine": "ready", "message": "scripted engine", "load": 0}
    theme = client.get("theme.css").text
    assert "url(http" not in theme and "@import" not in theme


# --- start ----------------------------------------------------------------------------------------------


def test_the_page_is_built_without_torch_and_asks_nobody_outside(tmp_path: Path) -> None:
    write_library(tmp_path)
    code = f"""
import sys, pathlib, threading, urllib.request
asked = []
def hook(event, args):
    if event == "socket.getaddrinfo" or event == "socket.connect" and isinstance(args[1], tuple):
        host = args[0] if event == "socket.getaddrinfo" else args[1][0]
        if host not in ("127.0.0.1", "localhost", "0.0.0.0", "::1", None):
            asked.append(host)
sys.addaudithook(hook)
sys.path.insert(0, "tests")
from page_tools import serving, until
from viz.library import Library
from viz.live import PairEngine
from viz.sessions import NoEngine
engine = NoEngine()
pair, seen = PairEngine("no such pair"), threading.Event()
engine.start = lambda: seen.wait(60) and pair.start()  # after the first page, however slow the machine is
library = Library(pathlib.Path({str(tmp_path)!r}))
with serving(library, engine) as (address, _):
    urllib.request.urlopen(address).read()
    urllib.request.urlopen(address + "recorded/" + library.runs[0].run_id + ".json").read()
    print("torch" in sys.modules)
    seen.set()
    until(lambda: pair.state == "failed", 60)
print(asked)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=90)
    assert done.stdout.split() == ["False", "[]"], done.stderr


def test_app_takes_the_documented_arguments_and_refuses_others() -> None:
    import app

    given = app.arguments().parse_args(["--host", "0.0.0.0", "--port", "7000", "--replay-only"])
    assert (given.host, given.port, given.replay_only, given.pair) == ("0.0.0.0", 7000, True, "default")
    with pytest.raises(SystemExit) as stopped:
        app.arguments().parse_args(["--nonsense"])
    assert stopped.value.code == 2


def test_the_list_of_recorded_runs_is_what_the_files_say(tmp_path: Path) -> None:
    library = write_library(tmp_path)
    for run in library.runs:
        trace = tr.load(tmp_path / run.file)
        assert run.run_id == trace.run_id and run.prompt == trace.prompt["text"]
        assert run.method == trace.header["settings"]["method"]
    menu = library.menu()
    assert [group["title"] for group in menu] == ["Math", "Code", "Chat"]
    assert menu[0]["runs"][0]["method"] == "dominotree" and menu[0]["runs"][-1]["method"] == "ar"
    # fields in another order, a damaged file, a foreign one
    name = library.runs[0].file
    data = json.loads(gzip.decompress((tmp_path / name).read_bytes()))
    (tmp_path / name).write_bytes(gzip.compress(json.dumps(dict(reversed(data.items()))).encode()))
    (tmp_path / library.runs[1].file).write_bytes(b"\x1f\x8b damaged")
    (tmp_path / library.runs[2].file).write_bytes(gzip.compress(b'{"other": 1}'))
    again = Library(tmp_path)
    assert len(again.runs) == len(library.runs) - 2
    assert {run.prompt for run in again.runs} == {run.prompt for run in library.runs}


def test_the_shipped_recordings_are_listed_and_opened() -> None:
    library = Library()
    if not library.runs:
        pytest.skip("no recordings in assets/traces yet")
    methods = {(run.kind, run.method) for run in library.runs if not run.temperature}
    assert {(kind, method) for kind in ("math", "code", "chat") for method in RECORDED} <= methods
    for run in library.runs:
        assert library.trace(run.run_id).run_id == run.run_id, f"{run.file} was changed after it was recorded"
