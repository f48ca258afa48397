"""Serve the pages of a root to the browsers of this machine: the same script as in one file, values when they are asked for.

Only a browser with the address that `serve` tells gets anything: it has a token, which a browser keeps as a cookie. Requests
that name another host are refused, so a page elsewhere cannot have its name stand for this machine; those of other sites have
no cookie.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from offline_core.data.datasets.about import OF_RESULTS, say_about
from offline_core.data.datasets.catalogue import Catalogue, open_catalogue, read_catalogue
from offline_core.data.datasets.marks import mark_episode
from offline_core.errors import ConfigError, OfflineError, unexpected
from offline_core.keeping.homepage.config import ReportConfig
from offline_core.keeping.homepage.page import page_of, security_policy, title_of
from offline_core.keeping.homepage.site import LISTS, ROW_LISTS, Memory, Site
from offline_core.keeping.homepage.values import minute_now
from offline_core.runtime.extras import require_extra
from offline_core.runtime.garbage import collection_paused

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
EXTRA = "serve"
SECONDS_BETWEEN_LOOKS = 1.0
BUSY_SHARE = 0.1
"""Of the time that may go into looking: a root that takes a second to list is listed every ten."""
FIRST_FOLDERS = 100
"""Of each kind of file, with what is shown first."""
COMPRESSION = 4
"""Of 9: a list of thousands is a tenth as long then, and higher ones take several times as long for little."""
MAX_BODY_BYTES = 200_000
_HEADERS = {
    "Content-Security-Policy": f"{security_policy(is_served=True)}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Rows:
    """The rows of a list, and at which of its changes each became as it is."""

    def __init__(self) -> None:
        self.number = 0
        self._fields: Sequence[str] = ()
        self._rows: Mapping[str, Any] = {}
        self._changed: dict[str, int] = {}
        self._gone: dict[str, int] = {}

    def update(self, fields: Sequence[str], rows: Mapping[str, Any]) -> None:
        """Take the rows as they are now."""
        self._fields = fields
        if rows is self._rows or rows == self._rows:
            return
        self.number += 1
        for name in rows.keys() | self._rows.keys():
            if name not in rows:
                self._gone[name] = self.number
                self._changed.pop(name, None)
            elif name not in self._rows or rows[name] != self._rows[name]:
                self._changed[name] = self.number
                self._gone.pop(name, None)
        self._rows = rows

    def since(self, number: int) -> dict[str, Any]:
        """The rows that changed after a change of that number, and the names of those that are gone since."""
        rows = {name: row for name, row in self._rows.items() if self._changed[name] > number}
        return {"fields": self._fields, "rows": rows, "gone": [name for name, at in self._gone.items() if at > number]}

    def all(self) -> dict[str, Any]:
        """All of them."""
        return {"fields": self._fields, "rows": self._rows}


class LiveSite:
    """The values of a root as it is now: while a page asks, it is listed now and then, and files that changed are read.

    At first only what changed last is read; a thread reads on, since thousands of runs take seconds.

    Raises:
        StorageError: the root cannot be listed.
    """

    def __init__(self, root: str, config: ReportConfig) -> None:
        self._config, self._memory = config, Memory()
        self._logged: set[str] = set()
        self._looking, self._changing = threading.Lock(), threading.Lock()
        self._lists = {name: Rows() for name in ROW_LISTS}
        self._started, self._moment, self._is_opened = secrets.token_hex(4), 0, False
        begin = time.monotonic()
        catalogue = open_catalogue(root)
        self.root = catalogue.root
        self.site = self._read(catalogue.newest(FIRST_FOLDERS))
        """What was read last."""
        self._next_look = _next_look(begin)
        if self._unread:
            threading.Thread(target=self._read_on, args=(catalogue,), name="read root", daemon=True).start()

    @property
    def _unread(self) -> int:
        """Files that are still to be read."""
        return self.site.contents.catalogue.left_out

    def _read_on(self, catalogue: Catalogue) -> None:
        """Read all, the newest first, and show what was read from time to time."""
        folders = FIRST_FOLDERS
        with self._looking:
            try:
                while self._unread:
                    folders *= 4
                    self._show(catalogue.newest(folders))
            except Exception as error:  # a later look reads them
                log.warning("%s is not read to its end: %s", self.root.uri, error)

    def _show(self, catalogue: Catalogue) -> None:
        self.site = self._read(catalogue)
        self._moment += 1

    def _read(self, catalogue: Catalogue) -> Site:
        """All that describes what is there: threads that ask for values then read no file at the same time."""
        with collection_paused():
            site = Site(catalogue, self._config, self._memory)
            try:
                site.value("overview")
            except Exception as error:  # the lists that can be made are shown
                self.tell(error)
        for name, reason in site.contents.problems:
            self._log(f"{name}: {reason}")
        return site

    def tell(self, error: Exception) -> str:
        """Say in words that this package failed; the log says it once, and where."""
        self._log(unexpected(error), error)
        return unexpected(error)

    def _log(self, said: str, error: Exception | None = None) -> None:
        if said not in self._logged:
            self._logged.add(said)
            log.warning("%s", said, exc_info=error)

    def _open_newest(self) -> None:
        """Read the index of the newest dataset, while the first page is looked at: who opens it then waits for no import."""
        with contextlib.suppress(OfflineError):
            for name in [*self.site.datasets][:1]:
                self.site.value("episodes", name)

    def look(self) -> None:
        """Look at the root, if it is time to; who comes while another looks gets what was there before."""
        if time.monotonic() < self._next_look or not self._looking.acquire(blocking=False):
            return
        try:
            begin = time.monotonic()
            catalogue = read_catalogue(self.root)
            if self._unread or catalogue.files != self.site.contents.catalogue.files:
                self._show(catalogue)
        finally:
            self._next_look = _next_look(begin)
            self._looking.release()

    def answer(self, name: list[Any], known: str | None) -> tuple[int, str, bytes]:
        """(status, tag, JSON) of a value; 304 without it if it is what the asker knows, 226 with only the rows that changed.

        Arguments:
            known: the tag of what the asker has.
        """
        self.look()
        if name == ["moment"]:
            if not self._is_opened:  # the page is drawn by now
                self._is_opened = True
                threading.Thread(target=self._open_newest, name="open newest", daemon=True).start()
            return _whole({"at": minute_now(), "change": self._moment, "unread": self._unread}, known)
        if len(name) == 1 and name[0] in ROW_LISTS:
            with self._changing:
                return self._changed(name[0], known)
        return _whole(self.site.value(*name), known)

    def _changed(self, name: str, known: str | None) -> tuple[int, str, bytes]:
        rows = self._lists[name]
        rows.update(**self.site.value(name))
        before, tag = self._number(known), self._tag(rows.number)
        if before is None or before > rows.number:
            return 200, tag, _json(rows.all())
        return (304, tag, b"") if before == rows.number else (226, tag, _json(rows.since(before)))

    def mark(self, dataset: str, number: int, is_bad: bool, *, id: str | None) -> None:
        """Mark an episode of a dataset as bad, or take the mark away.

        Raises:
            LookupError: The number names another episode than the one with this id by now.
        """
        location, episode = self.site.episode_name(dataset, number)
        if id not in (None, episode.eps_id):
            raise LookupError(f"{dataset} has another version by now, in which episode {number} is another one. Open it anew.")
        with self._changing:
            mark_episode(location, episode, is_bad=is_bad)
        self._next_look = 0.0

    def note(self, run: str, text: str) -> None:
        """Say this of a training; an empty text takes back what was said.

        Raises:
            LookupError: There is no such training.
        """
        contents = self.site.contents
        folder = "" if run == "." else run
        if not (folder in contents.learned or folder in contents.unfinished or folder in contents.failures):
            raise LookupError(f"There is no experiment {run} any more.")
        say_about(contents.catalogue.location(folder), {"description": text}, OF_RESULTS)
        self._next_look = 0.0

    def _tag(self, number: int) -> str:
        return f'"{self._started}-{number}"'

    def _number(self, tag: str | None) -> int | None:
        begin = f'"{self._started}-'
        is_ours = tag is not None and tag.startswith(begin) and tag[len(begin) : -1].isdecimal()
        return int(tag[len(begin) : -1]) if tag is not None and is_ours else None


def _next_look(begin: float) -> float:
    """When to look again, after a look that began then."""
    now = time.monotonic()
    return now + max(SECONDS_BETWEEN_LOOKS, (now - begin) / BUSY_SHARE)


def _whole(value: Any, known: str | None) -> tuple[int, str, bytes]:
    body = _json(value)
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    return (304, tag, b"") if tag == known else (200, tag, body)


def _json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False, default=str).encode("utf-8", "replace")


def app_of(live: LiveSite, token: str, port: int) -> Starlette:
    """The application.

    Arguments:
        token: who knows it is let in.
        port: of this machine that it is served at.

    Raises:
        ConfigError: Starlette is not installed.
    """
    with require_extra(EXTRA):
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.middleware.gzip import GZipMiddleware
        from starlette.responses import HTMLResponse, JSONResponse, Response
        from starlette.routing import Route

    page = page_of(title_of(live.root.uri), None)
    hosts = {f"{host}:{port}" for host in (HOST, "localhost")}

    def home(request: Request) -> Response:
        return HTMLResponse(page)

    def value(request: Request) -> Response:
        def read() -> Response:
            name = json.loads(request.query_params.get("of", ""))
            if not isinstance(name, list) or not name or not all(isinstance(part, str | int) for part in name):
                raise LookupError("no name")
            try:
                status, tag, body = live.answer(name, request.headers.get("If-None-Match"))
            except OfflineError:
                raise
            except (LookupError, TypeError) as error:
                if len(name) == 1 and name[0] in (*ROW_LISTS, *LISTS):  # which are always there
                    return JSONResponse({"error": live.tell(error)})
                status, tag, body = 200, '""', b"null"  # what is not there, or is no longer
            return Response(body, status, {"ETag": tag}, "application/json")

        return told(read)

    async def changed(request: Request, change: Callable[[Any], None]) -> Response:
        """What the page of this server says in JSON, written beside the data."""
        from starlette.concurrency import run_in_threadpool

        if int(request.headers.get("Content-Length") or MAX_BODY_BYTES) >= MAX_BODY_BYTES:
            return JSONResponse({"error": "This is too long."}, 413)
        body = await request.body()

        def write() -> Response:
            change(json.loads(body))
            return JSONResponse({})

        return await run_in_threadpool(told, write)

    def mark(given: Any) -> None:
        dataset, number, is_bad = given["dataset"], given["number"], given["is_bad"]
        if not (isinstance(dataset, str) and type(number) is int and isinstance(is_bad, bool)):
            raise LookupError("An episode is named by its dataset and its number.")
        live.mark(dataset, number, is_bad, id=given.get("id"))

    def note(given: Any) -> None:
        run, text = given["run"], given["text"]
        if not (isinstance(run, str) and isinstance(text, str)):
            raise LookupError("A note is a text on an experiment, which is named by its folder.")
        live.note(run, text)

    def told(work: Callable[[], Response]) -> Response:
        """What `work` answers; what it cannot do is an answer in words, which the page shows."""
        try:
            return work()
        except OfflineError as error:
            return JSONResponse({"error": str(error)})
        except Exception as error:  # one value that cannot be shown is no reason to show none
            if isinstance(error, ValueError | LookupError | TypeError):
                log.debug("A request is not answered", exc_info=True)
                return JSONResponse({"error": f"This cannot be answered ({type(error).__name__}: {error})."})
            return JSONResponse({"error": live.tell(error)})

    changes = {"mark": mark, "note": note}
    routes = [
        Route("/", home),
        Route("/value", value),
        *(Route(f"/{name}", functools.partial(changed, change=change), methods=["POST"]) for name, change in changes.items()),
    ]
    guard = Middleware(_Guard, hosts=hosts, token=token, cookie=f"offline-report-{port}")
    return Starlette(routes=routes, middleware=[guard, Middleware(GZipMiddleware, compresslevel=COMPRESSION)])


class _Guard:
    """Lets in who has the token, by whatever name this machine has, and adds the headers of each response."""

    def __init__(self, app: Any, *, hosts: set[str], token: str, cookie: str) -> None:
        self._app, self._hosts, self._token, self._cookie = app, hosts, token, cookie

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        from starlette.datastructures import Headers, MutableHeaders, QueryParams
        from starlette.responses import PlainTextResponse

        if scope["type"] != "http":
            return
        headers, cookie = Headers(scope=scope), ""
        origin = headers.get("origin")
        is_new = _equal(QueryParams(scope["query_string"]).get("token", ""), self._token)
        if is_new:
            cookie = f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict"

        async def send_guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                made = MutableHeaders(scope=message)
                for name, text in _HEADERS.items():
                    made[name] = text
                if cookie:
                    made.append("Set-Cookie", cookie)
            await send(message)

        if headers.get("host", "") not in self._hosts:
            refused = PlainTextResponse("This server is asked by another name than its own.", 421)
            cookie = ""
        elif (origin is not None or scope["method"] != "GET") and origin not in {f"http://{host}" for host in self._hosts}:
            refused = PlainTextResponse("Only the pages of this server may ask it.", 403)
            cookie = ""
        elif not is_new and not _equal(_cookies(headers.get("cookie", "")).get(self._cookie, ""), self._token):
            refused = PlainTextResponse("Open the address that 'offline report --serve' has printed: it has a token.", 403)
        else:
            await self._app(scope, receive, send_guarded)
            return
        await refused(scope, receive, send_guarded)


def _equal(given: str, token: str) -> bool:
    return secrets.compare_digest(given.encode(), token.encode())


def _cookies(header: str) -> dict[str, str]:
    """By name; what other programs of this machine set may be no cookie at all."""
    pairs = (pair.strip().partition("=") for pair in header.split(";"))
    return {name: value for name, _, value in pairs}


def _quiet_server(settings: uvicorn.Config) -> uvicorn.Server:
    """One that a signal ends in order. Uvicorn's own raises the signal again once it has ended, as if it came twice."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            if threading.current_thread() is not threading.main_thread():
                yield
                return
            before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
            try:
                yield
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)

    return Server(settings)


class ReportServer:
    """A server of the pages of a root at a port of this machine.

    Arguments:
        port: 0: one that is free.

    Raises:
        ConfigError: the port is taken, or Starlette or uvicorn is not installed.
        StorageError: the root cannot be listed.
    """

    def __init__(self, root: str, config: ReportConfig, *, port: int = 0) -> None:
        with require_extra(EXTRA):
            import uvicorn

        self.live = LiveSite(root, config)
        self._socket = socket.socket(proto=socket.IPPROTO_TCP)  # by which asyncio knows to send small answers at once
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((HOST, port))
            self._socket.listen()
        except OSError as error:
            self._socket.close()
            raise ConfigError(f"Port {port} of {HOST} cannot be used: {error.strerror}. Choose another one, or 0.") from error
        bound, token = self._socket.getsockname()[1], secrets.token_urlsafe(24)
        self.address = f"http://{HOST}:{bound}/?token={token}"
        """With the token: who knows it may look, and mark episodes."""
        settings = uvicorn.Config(
            app_of(self.live, token, bound),
            lifespan="off",
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=5,  # a look at a large root takes seconds
        )
        self._server = _quiet_server(settings)

    def run(self) -> None:
        """Answer until the process is stopped, or `stop` is called by another thread."""
        with self._socket:
            self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Let `run` end."""
        self._server.should_exit = True
