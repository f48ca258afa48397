"""A proxy before an S3 server, on which the network and the server fail as they do in earnest, and which counts bytes."""

from __future__ import annotations

import contextlib
import http.client
import random
import re
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.waiting import PATIENCE_SECONDS

CHUNK_BYTES = 2**16


@dataclass(frozen=True)
class Request:
    """What a client asks, before the server knows of it."""

    method: str
    path: str
    """/bucket/key?query"""
    nth: int
    """How often it was asked before."""


@dataclass(frozen=True)
class Answer:
    """The server answers this, having done nothing."""

    status: int
    body: str
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class CutRequest:
    """The connection is reset in the middle of the request; the server never sees it."""


@dataclass(frozen=True)
class LoseAnswer:
    """The server has done what was asked, and the connection is reset before it can say so."""


@dataclass(frozen=True)
class CutAnswer:
    """The connection is reset in the middle of the answer's body."""


@dataclass(frozen=True)
class Wait:
    """The answer comes late."""

    seconds: float


Fault = Answer | CutRequest | LoseAnswer | CutAnswer | Wait
Plan = Callable[[Request], Fault | None]


def refusal(status: int, code: str, *, more: str = "", **headers: str) -> Answer:
    """As S3 refuses: an answer to HEAD says nothing but its status."""
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>No.</Message>{more}</Error>'
    return Answer(status, body, tuple((name.replace("_", "-"), value) for name, value in headers.items()))


FAULTS: tuple[Fault, ...] = (
    refusal(500, "InternalError"),
    refusal(503, "SlowDown"),
    CutRequest(),
    LoseAnswer(),
    CutAnswer(),
    Wait(0.2),
)


def no_faults(request: Request) -> None:
    """All goes well."""


def seeded(seed: int, *, rate: float, faults: tuple[Fault, ...] = FAULTS) -> Plan:
    """Each of `faults` now and then; which request meets which does not depend on who is first."""

    def plan(request: Request) -> Fault | None:
        bucket = request.path.split("/")[1].partition("?")[0]  # which has another name each time
        draw = random.Random(f"{seed} {request.method} {request.path.removeprefix(f'/{bucket}')} {request.nth}")
        return draw.choice(faults) if draw.random() < rate else None

    return plan


@dataclass(frozen=True)
class Seen:
    """A request that was answered, or met a fault."""

    request: Request
    fault: Fault | None
    received_bytes: int
    """Of the body that the client was sent."""
    at: float
    """time.monotonic()"""
    credential: str
    """Who signed it, when and for where, as in key/20260101/eu-west-1/s3/aws4_request; empty if nobody did."""

    @property
    def user(self) -> str:
        return self.credential.partition("/")[0]

    @property
    def region(self) -> str:
        return [*self.credential.split("/"), "", "", ""][2]


@dataclass
class Proxy:
    """Where it listens, what it does to requests, and what it saw."""

    upstream: str
    plan: Plan = no_faults
    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    _asked: Counter[tuple[str, str]] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def numbered(self, method: str, path: str) -> Request:
        with self._lock:
            self._asked[method, path] += 1
            return Request(method, path, self._asked[method, path])

    @property
    def faults(self) -> list[Fault]:
        """Those that requests met."""
        return [each.fault for each in self.seen if each.fault]

    def gets(self, ending: str) -> list[Seen]:
        """Reads of the objects whose name ends so."""
        return [
            each for each in self.seen if each.request.method == "GET" and each.request.path.partition("?")[0].endswith(ending)
        ]


@contextlib.contextmanager
def proxy(upstream: str, plan: Plan = no_faults) -> Iterator[Proxy]:
    """A proxy that listens inside the block."""
    running = Proxy(upstream, plan)

    class Handler(_Handler):
        proxy = running

    with _Server(("127.0.0.1", 0), Handler) as server:
        running.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, name="proxy", daemon=True)
        thread.start()
        try:
            yield running
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are none of its business."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    proxy: Proxy
    protocol_version = "HTTP/1.1"

    def _handle(self) -> None:
        asked = self.proxy.numbered(self.command, self.path)
        fault = self.proxy.plan(asked)
        received = 0
        try:
            if isinstance(fault, CutRequest):
                self.rfile.read(min(64, int(self.headers.get("Content-Length") or 0)))
                self._reset()
                return
            body = self._body()
            if isinstance(fault, Wait):
                time.sleep(fault.seconds)
            if isinstance(fault, Answer):
                received = self._answer(fault)
                return
            with contextlib.closing(self._forward(body)) as answer:
                if isinstance(fault, LoseAnswer):
                    answer.read()
                    self._reset()
                    return
                received = self._pass_on(answer, cut=isinstance(fault, CutAnswer))
        except OSError:  # the client has gone away
            self.close_connection = True
        finally:
            credential = re.search(r"Credential=([^,]*)", self.headers.get("Authorization", ""))
            self.proxy.seen.append(Seen(asked, fault, received, time.monotonic(), credential[1] if credential else ""))

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle  # noqa: N815

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return body

    def _forward(self, body: bytes) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(urlsplit(self.proxy.upstream).netloc, timeout=PATIENCE_SECONDS)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in ("connection", "expect", "transfer-encoding", "content-length"):
                connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.putheader("Connection", "close")
        connection.endheaders(body)
        return connection.getresponse()

    def _answer(self, fault: Answer) -> int:
        data = b"" if self.command == "HEAD" else fault.body.encode()
        self.send_response(fault.status)
        for name, value in (("Content-Type", "application/xml"), ("Content-Length", str(len(data))), *fault.headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
        return len(data)

    def _pass_on(self, answer: http.client.HTTPResponse, *, cut: bool) -> int:
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "server", "date"):
                self.send_header(name, value)
        if self.command == "HEAD" or answer.status in (204, 304):
            self.end_headers()
            return 0
        data = answer.read() if answer.getheader("Content-Length") is None else None
        if data is not None:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        size = len(data) if data is not None else int(answer.getheader("Content-Length") or 0)
        sent = 0
        while sent < size:
            if cut and sent >= size // 2:
                self._reset()
                return sent
            step = min(CHUNK_BYTES, max(1, size // 2) if cut else size)
            chunk = data[sent : sent + step] if data is not None else answer.read(min(step, size - sent))
            self.wfile.write(chunk)
            sent += len(chunk)
        return sent

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with contextlib.suppress(OSError):
            self.wfile.flush()
        self.connection.close()  # with SO_LINGER of nought seconds: a reset, and not an orderly end

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""
