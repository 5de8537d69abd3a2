"""A class that opens the page and presses Run at once; and how soon the real pair answers and stops.

Real server, real decoding: the crowd runs on a tiny model of random weights, the times are those of the default pair.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from page_tools import Counted, busy, serving, until, write_library
from tiny import tiny_pair

from dominotree import trace as tr
from dominotree.decode import Run, Settings
from viz.library import Library
from viz.live import PairEngine
from viz.sessions import Sessions

VISITORS = 100
LEAVERS = 10  # of them close their page right after Run
SETTINGS = (4, 16, 0, "", 8)  # budget, top-M, temperature, seed, new tokens


class TinyEngine:
    """The real round loop on a tiny pair; notes which prompts ran, and how many at once."""

    state, message = "ready", "tiny pair"

    def __init__(self) -> None:
        self.pair = tiny_pair()
        self.prompts: list[str] = []
        self.at_once = self.most_at_once = 0

    def run(self, prompt: str, settings: dict[str, Any], cancel: threading.Event) -> Any:
        self.prompts.append(prompt)
        run = Run(self.pair, prompt, Settings(**settings), record=True, cancel=cancel)
        return Counted(self, run)


async def open_page(client: httpx.AsyncClient) -> list[int]:
    """The page and all that its head asks for, as a browser does; the answers' codes."""
    page = await client.get("")
    head = page.text.split("</head>")[0]
    wanted = re.findall(r'(?:src|href)="((?:player|shell|recorded)/[^"]+)"', head)
    assert len(wanted) > 20
    answers = [await client.get(address) for address in wanted]
    return [page.status_code, *(answer.status_code for answer in answers)]


async def press_run(client: httpx.AsyncClient, n: int) -> str:
    data = {"data": ["dominotree", f"visitor {n}", *SETTINGS], "session_hash": f"visitor{n}"}
    answer = await client.post("gradio_api/run/run", json=data)
    assert answer.status_code == 200
    told = json.loads(answer.json()["data"][0])
    assert "error" not in told, told
    return str(told["token"])


async def follow(client: httpx.AsyncClient, token: str, most: int | None = None) -> list[dict[str, Any]]:
    """What the server tells who follows the run, up to ``most`` events."""
    events: list[dict[str, Any]] = []
    async with client.stream("GET", f"live/{token}/events") as stream:
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line[6:]))
                if len(events) == most:
                    break
    return events


def test_S01_a_class_opens_the_page_and_presses_run_at_once(tmp_path: Path) -> None:
    engine = TinyEngine()

    async def visitor(n: int, address: str) -> dict[str, Any]:
        async with httpx.AsyncClient(base_url=address, timeout=120, verify=False) as client:
            codes = await open_page(client)
            token = await press_run(client, n)
            events = await follow(client, token, most=1 if n < LEAVERS else None)
            trace = None if n < LEAVERS else (await client.get(f"live/{token}/0/trace.json")).content
        return {"codes": codes, "token": token, "events": events, "trace": trace}

    async def crowd(address: str) -> list[dict[str, Any]]:
        return await asyncio.gather(*(visitor(n, address) for n in range(VISITORS)))

    with serving(write_library(tmp_path), engine) as (address, sessions):
        came = asyncio.run(crowd(address))
        until(lambda: sessions.load == 0, 20)
    assert {code for visit in came for code in visit["codes"]} == {200}
    assert len({visit["token"] for visit in came}) == VISITORS
    assert engine.most_at_once == 1
    for n, visit in enumerate(came[LEAVERS:], LEAVERS):
        kinds = [event["type"] for event in visit["events"] if event["type"] != "waiting"]
        assert kinds[0] == "start" and kinds[-2:] == ["finish", "end"] and "error" not in kinds
        assert visit["events"][-1]["state"] == "done"
        trace = tr.from_json(visit["trace"])
        assert trace.prompt["text"] == f"visitor {n}"  # nobody else's
        assert len(trace.rounds) == kinds.count("round") > 0
        places = [event["place"] for event in visit["events"] if event["type"] == "waiting"]
        assert places == sorted(places, reverse=True)  # nobody is passed
    waited = [event for visit in came for event in visit["events"] if event["type"] == "waiting"]
    assert max(event["place"] for event in waited) > 10
    assert all(event["seconds"] >= 0 for event in waited)
    assert len(engine.prompts) == len(set(engine.prompts)) >= VISITORS - LEAVERS


@pytest.fixture(scope="module")
def real() -> Iterator[tuple[str, Sessions]]:
    """The server with the default pair, loaded and warm."""
    engine = PairEngine()
    engine.start()
    until(lambda: engine.state != "loading", 240)
    assert engine.state == "ready", engine.message
    with serving(Library(), engine) as (address, sessions):
        yield address, sessions


def ask(client: httpx.Client, prompt: str, visitor: str, tokens: int = 64) -> str:
    data = {"data": ["dominotree", prompt, 16, 64, 0, "", tokens], "session_hash": visitor}
    return str(json.loads(client.post("gradio_api/run/run", json=data).json()["data"][0])["token"])


def first(client: httpx.Client, token: str, kind: str) -> dict[str, Any]:
    """The first event of a kind; the stream is then left."""
    with client.stream("GET", f"live/{token}/events") as stream:
        for line in stream.iter_lines():
            if line.startswith("data: ") and json.loads(line[6:])["type"] == kind:
                return dict(json.loads(line[6:]))
    raise AssertionError(f"the stream ended without {kind!r}")


@pytest.mark.pair
def test_the_first_round_comes_within_a_second_of_run(real: Any, record_property: Any) -> None:
    address, sessions = real
    spent = []
    with httpx.Client(base_url=address, timeout=60) as client:
        for n in range(3):
            started = time.monotonic()
            token = ask(client, "Why is the sky blue?", f"first {n}")
            first(client, token, "round")
            spent.append(time.monotonic() - started)
            client.post(f"live/{token}/stop")
            until(lambda: sessions.load == 0, 20)
    record_property("first_round_s", spent)
    assert min(spent) < 1.0 * busy(), spent


@pytest.mark.pair
@pytest.mark.parametrize("prompt", ["Count to a hundred.", "All the words of a long text. " * 200])
def test_stop_frees_the_engine_and_run_right_after_works(
    real: Any, prompt: str, record_property: Any
) -> None:
    """Also while the prompt is still being read: the long one takes seconds."""
    address, sessions = real
    with httpx.Client(base_url=address, timeout=60) as client:
        token = ask(client, prompt, "hasty", 256)
        job = sessions.find(token)
        assert job is not None
        until(lambda: job.state == "running", 20)
        if len(prompt) < 100:
            until(lambda: job.traces and job.traces[0].rounds, 20)
        else:
            time.sleep(0.3)
        pressed = time.monotonic()
        client.post(f"live/{token}/stop")
        again = ask(client, "Why is the sky blue?", "hasty", 16)
        until(lambda: job.over, 20)
        spent = time.monotonic() - pressed
        record_property("stop_s", spent)
        assert job.state == "cancelled" and spent < 1.0 * busy()
        assert first(client, again, "round")["round"]["index"] == 1
        client.post(f"live/{again}/stop")
        until(lambda: sessions.load == 0, 20)


@pytest.mark.pair
def test_a_second_visitor_waits_with_place_and_seconds_until_the_first_leaves(real: Any) -> None:
    address, sessions = real
    with httpx.Client(base_url=address, timeout=60) as client:
        token = ask(client, "Tell me a very long story.", "first", 400)
        with client.stream("GET", f"live/{token}/events") as stream:
            for line in stream.iter_lines():
                if '"type":"round"' in line:
                    break
            other = ask(client, "Name a colour.", "second", 8)
            told = first(client, other, "waiting")
            assert told["place"] == 1 and told["seconds"] > 0
            job = sessions.find(token)
            assert job is not None and not job.over
        left = time.monotonic()  # the first visitor's page is closed
        rounds = first(client, other, "round")
        assert rounds["round"]["index"] == 1
        assert job.state == "cancelled"
        assert time.monotonic() - left < 3.0 + 2.0 * busy()  # Limits.grace, and the round that was going on
        until(lambda: sessions.load == 0, 30)
