"""The web server: Gradio's page in the middle, and around it the routes that the in-browser player uses.

Every address is relative, so that the page also works below a path. Nothing that the page needs comes from
another host: a Content-Security-Policy forbids it, whatever a library tries. No route reads a path that a
visitor names.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
import threading
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.datastructures import MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dominotree import trace as tr
from viz import benchmarks, lessons
from viz import library as lib
from viz.page import build, head, mount
from viz.sessions import Job, Sessions

HERE = Path(__file__).resolve().parent
FOLDERS = {"player": HERE / "player", "shell": HERE / "shell"}
FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}
NO_CACHE = {"Cache-Control": "no-store"}
#: Gradio's own routes that take or hand out files or reach other hosts; the page uses none of them.
CLOSED = (
    "upload",
    "upload_progress",
    "file",
    "proxy",
    "stream",
    "process_recording",
    "vibe-",
    "undo-vibe",
    "custom_component",
)
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self' data: blob:; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'self'; form-action 'self'"
)
CHARSET = b'<meta charset="utf-8" />'  # the first line of the head of Gradio's page
FOREIGN = re.compile(rb'<meta\s+(?:property|name)="(?:og|twitter):[^>]*>|<link rel="manifest"[^>]*>')
GONE = "This run is no longer kept on the server: run it again, or import its saved JSON."


class Shell:
    """Middleware: security headers, long caching of Gradio's hashed files, our own head, closed routes."""

    def __init__(self, app: ASGIApp, page_head: Callable[[], str]) -> None:
        self.app = app
        self.page_head = page_head

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", "")).lstrip("/")
        area, _, rest = path.partition("/")
        if area == "gradio_api" and rest.startswith(CLOSED):
            response = JSONResponse({"error": "This page takes and gives no files here."}, 403)
            await response(scope, receive, send)
            return
        home = path == ""
        if home:  # Gradio would compress it; we have to read it
            scope = {**scope, "headers": [h for h in scope["headers"] if h[0] != b"accept-encoding"]}
        body = b""
        start: Message = {}

        async def answer(message: Message) -> None:
            nonlocal body, start
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "same-origin"
                headers["Content-Security-Policy"] = POLICY
                if area == "assets" and message["status"] == 200:
                    headers["Cache-Control"] = FOREVER["Cache-Control"]
                if home:
                    start = message
                    return
            elif home:
                body += message.get("body", b"")
                if message.get("more_body"):
                    return
                text = FOREIGN.sub(b"", body).replace(CHARSET, CHARSET + self.page_head().encode(), 1)
                MutableHeaders(scope=start)["Content-Length"] = str(len(text))
                await send(start)
                message = {"type": "http.response.body", "body": text}
            await send(message)

        await self.app(scope, receive, answer)


def packed(request: Request, body: bytes, media_type: str, headers: dict[str, str]) -> Response:
    """A body that is stored gzipped, for browsers that take it so and for those that do not."""
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers = {**headers, "Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return Response(body, media_type=media_type, headers=headers)
    return Response(zlib.decompress(body, 31), media_type=media_type, headers=headers)


def export(trace: tr.Trace, what: str) -> tuple[str, str, str] | None:
    """A file of a run as (name, media type, text): rounds.csv, nodes.csv or trace.json; None otherwise."""
    if not trace.run_id:
        trace.run_id = tr.content_id(trace)
    method = str(trace.header.get("settings", {}).get("method", "run"))  # an imported file may say anything
    stem = f"dominotree-{re.sub(r'[^a-z0-9_-]', '', method)[:40] or 'run'}-{trace.run_id}"
    if what == "rounds.csv":
        return f"{stem}-rounds.csv", "text/csv", tr.rounds_csv(trace)
    if what == "nodes.csv":
        return f"{stem}-nodes.csv", "text/csv", tr.nodes_csv(trace)
    if what == "trace.json":
        return f"{stem}.json", "application/json", tr.to_json(trace)
    return None


def _error(message: str, status: int) -> JSONResponse:
    return JSONResponse({"error": message}, status, headers=NO_CACHE)


async def _download(trace: tr.Trace, what: str) -> Response:
    file = await asyncio.to_thread(export, trace, what)
    if file is None:
        return _error("There are rounds.csv, nodes.csv and trace.json.", 404)
    name, media_type, text = file
    headers = {**NO_CACHE, "Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text.encode("utf-8"), media_type=f"{media_type}; charset=utf-8", headers=headers)


def create_app(
    library: lib.Library,
    sessions: Sessions,
    on_start: Callable[[], object] | None = None,
    public_url: str = "",
) -> FastAPI:
    """The whole web application. ``on_start`` (the engine's loading) is called once the server answers.

    ``public_url``: the page's address for others, in QR codes and copied links.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        starter = threading.Timer(2.0, on_start) if on_start else None  # the first page first
        if starter:
            starter.daemon = True
            starter.start()
        yield
        if starter:
            starter.cancel()
        sessions.close()

    app = FastAPI(title="DominoTree Live", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)

    @app.exception_handler(tr.TraceError)
    async def bad_trace(_: Request, error: Exception) -> Response:
        return _error(str(error), 500)

    files = {area: lib.web_files(folder) for area, folder in FOLDERS.items()}
    version = lib.version(*files.values())

    def web_file(area: str) -> Callable[..., Awaitable[Response]]:
        async def answer(request: Request, name: str) -> Response:
            stamped = name.startswith(f"{version}/")
            file = files[area].get(name.removeprefix(f"{version}/"))
            if file is None:
                return _error("There is no such file.", 404)
            headers = FOREVER if stamped else {"Cache-Control": "no-cache"}
            if file.packed:
                return packed(request, file.body, file.media_type, headers)
            return Response(file.body, media_type=file.media_type, headers=headers)

        return answer

    for area in FOLDERS:
        app.get(f"/{area}/{{name:path}}")(web_file(area))

    # -- recorded runs: the same for everyone, cached for good under their content hash

    @app.get("/recorded/{run_id}.json")
    async def recorded(request: Request, run_id: str) -> Response:
        if library.find(run_id) is None:
            return _error("There is no recorded run with this name here.", 404)
        body = await asyncio.to_thread(library.served, run_id)
        headers = FOREVER if request.query_params.get("v") == version else {"Cache-Control": "no-cache"}
        return packed(request, body, "application/json", headers)

    @app.get("/recorded/{run_id}/{what}")
    async def recorded_export(run_id: str, what: str) -> Response:
        if library.find(run_id) is None:
            return _error("There is no recorded run with this name here.", 404)
        return await _download(await asyncio.to_thread(library.trace, run_id), what)

    # -- the figures of the Benchmarks tab, put together when they are first asked for

    @functools.cache
    def figures() -> bytes:
        return lib.pack(benchmarks.to_json(benchmarks.data(library)))

    @app.get("/benchmarks.json")
    async def benchmark_figures(request: Request) -> Response:
        try:
            body = await asyncio.to_thread(figures)
        except OSError:
            return _error(
                "The published figures are not on this server: start it from the project's folder.", 500
            )
        except ValueError as error:
            return _error(f"The figures could not be read: {error}", 500)
        return packed(request, body, "application/json", {"Cache-Control": "no-cache"})

    # -- the lessons: they read most of the recorded runs, once, when they are first asked for

    @functools.cache
    def lesson_texts() -> bytes:
        return lib.pack(lessons.served_json(library))

    preparing = asyncio.Lock()

    @app.get("/lessons.json")
    async def lesson_list(request: Request) -> Response:
        async with preparing:
            body = await asyncio.to_thread(lesson_texts)
        return packed(request, body, "application/json", {"Cache-Control": "no-cache"})

    # -- live and imported runs: only for who holds the token

    def job_of(token: str) -> Job | None:
        return sessions.find(token)

    @app.get("/live/{token}/events")
    async def events(request: Request, token: str) -> Response:
        job = job_of(token)
        if job is None:
            return _error(GONE, 404)
        seen = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
        after = int(seen) if seen.isdecimal() else 0

        async def stream() -> AsyncIterator[str]:
            yield "retry: 500\n\n"
            async for number, text in sessions.follow(job, after):
                if not text:
                    yield ": still here\n\n"
                else:
                    yield (f"id: {number}\n" if number else "") + f"data: {text}\n\n"

        headers = {**NO_CACHE, "X-Accel-Buffering": "no"}
        return StreamingResponse(stream(), media_type="text/event-stream", headers=headers)

    @app.post("/live/{token}/stop")
    async def stop(token: str) -> Response:
        return JSONResponse({"stopped": sessions.stop(token)}, headers=NO_CACHE)

    @app.get("/live/{token}/{pane}.json")
    async def live_trace(token: str, pane: int) -> Response:
        job = job_of(token)
        trace = job.snapshot(pane) if job else None
        if trace is None:
            return _error(GONE, 404)
        text = await asyncio.to_thread(lib.served_json, trace)
        return Response(text, media_type="application/json", headers=NO_CACHE)

    @app.get("/live/{token}/{pane}/{what}")
    async def live_export(token: str, pane: int, what: str) -> Response:
        job = job_of(token)
        trace = job.snapshot(pane) if job else None
        if trace is None:
            return _error(GONE, 404)
        return await _download(trace, what)

    importing = asyncio.Semaphore(2)  # a large trace takes much memory while it is read

    @app.post("/import")
    async def take_import(request: Request) -> Response:
        limits, body = sessions.limits, bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > limits.import_bytes:
                return _error(
                    f"This file is larger than {limits.import_bytes >> 20} MB, which is all this page takes.",
                    413,
                )
        try:
            async with importing:
                trace = await asyncio.to_thread(
                    tr.from_json, bytes(body), "This file", limits.import_unpacked
                )
                text = await asyncio.to_thread(lib.served_json, trace)
        except tr.TraceError as error:
            return _error(str(error), 400)
        job = sessions.adopt([trace], "import")
        return Response(
            f'{{"token":{json.dumps(job.token)},"trace":{text}}}',
            media_type="application/json",
            headers=NO_CACHE,
        )

    @app.get("/status")
    async def status() -> Response:
        engine: Any = sessions.engine
        return JSONResponse(
            {"engine": engine.state, "message": engine.message, "load": sessions.load}, headers=NO_CACHE
        )

    @app.get("/healthz")
    async def healthz() -> Response:
        return Response("ok", media_type="text/plain", headers=NO_CACHE)

    blocks = build(library, sessions)
    mount(app, blocks)
    page_head = head(library, sessions, version, public_url)
    app.add_middleware(GZipMiddleware, compresslevel=6)
    app.add_middleware(Shell, page_head=lambda: page_head)
    return app
