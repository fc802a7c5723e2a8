"""An S3-compatible store that lacks one thing or another: a proxy on loopback before the local AWS."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "date", "server"}


@dataclass(kw_only=True)
class Request:
    """What a client asked for, which a quirk may change."""

    method: str
    path: str
    headers: dict[str, str]

    @property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.path).query, keep_blank_values=True)

    def drops(self, header: str) -> None:
        """Pass over a header, as stores do that do not know it."""
        self.headers = {name: value for name, value in self.headers.items() if name.lower() != header}

    def has(self, header: str) -> bool:
        return any(name.lower() == header for name in self.headers)


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """An answer instead of the store's."""

    status: int
    code: str
    seconds: float = 0.0
    text: str | None = None


@dataclass(frozen=True, kw_only=True)
class Cut:
    """The store's answer, whose connection breaks in the middle of its body."""


@dataclass(kw_only=True)
class LesserStore:
    """The proxy; `quirk` sees every request, and changes or refuses it."""

    url: str = ""
    quirk: Callable[[Request], Refusal | Cut | None] = lambda _: None
    requests: list[Request] = field(default_factory=list)

    @classmethod
    @contextlib.contextmanager
    def before(cls, target: str, quirk: Callable[[Request], Refusal | Cut | None]) -> Iterator[Self]:
        """Run a proxy before the S3 server at `target`."""
        store = cls(quirk=quirk)
        host = urlsplit(target).netloc
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(store, host))
        server.daemon_threads = True
        store.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield store
        finally:
            server.shutdown()
            server.server_close()


def _handler(store: LesserStore, host: str) -> type[BaseHTTPRequestHandler]:  # noqa: C901 -- one class
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length) if length else self._chunked()
            request = Request(method=self.command, path=self.path, headers=dict(self.headers.items()))
            store.requests.append(request)
            refusal = store.quirk(request)
            if isinstance(refusal, Refusal):
                time.sleep(refusal.seconds)
                error = f"<Error><Code>{refusal.code}</Code><Message>{refusal.code}</Message></Error>"
                text = error if refusal.text is None else refusal.text
                self._answer(refusal.status, [("Content-Type", "application/xml")], text.encode())
                return
            upstream = http.client.HTTPConnection(host, timeout=30)
            headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
            upstream.request(
                request.method, request.path, body=body, headers={**headers, "Content-Length": str(len(body))}
            )
            answer = upstream.getresponse()
            data = answer.read()
            upstream.close()
            if refusal is not None:
                self.close_connection = True
                self._answer(answer.status, answer.getheaders(), data, send=len(data) // 2)
                return
            self._answer(answer.status, answer.getheaders(), data, length=answer.getheader("Content-Length"))

        def _chunked(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return b""
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def _answer(
            self, status: int, headers: Any, data: bytes, *, length: str | None = None, send: int | None = None
        ) -> None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in _HOP_BY_HOP:
                        self.send_header(name, value)
                self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data[:send])

        def log_message(self, *_: object) -> None:
            """Print nothing."""

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815

    return Handler


# ---- quirks ---------------------------------------------------------------------------------------------------------


def ignores(header: str, *, method: str = "PUT") -> Callable[[Request], None]:
    """Return the quirk of a store that passes over a condition."""

    def quirk(request: Request) -> None:
        if request.method == method:
            request.drops(header)

    return quirk


def refuses(header: str) -> Callable[[Request], Refusal | Cut | None]:
    """Return the quirk of a store that refuses a header."""
    return lambda request: Refusal(status=400, code="InvalidArgument") if request.has(header) else None


def refuses_parts(request: Request) -> Refusal | None:
    """No uploads in parts."""
    if {"uploads", "uploadId"} & set(request.query):
        return Refusal(status=501, code="NotImplemented")
    return None


def refuses_trailing_checksums(request: Request) -> Refusal | None:
    """As OSS and COS do: a checksum of the SDK that nobody asked for is an error."""
    if (
        request.has("x-amz-trailer")
        or request.has("x-amz-sdk-checksum-algorithm")
        or request.has("x-amz-checksum-crc32")
    ):
        return Refusal(status=400, code="InvalidArgument")
    return None


def throttles(times: int) -> Callable[[Request], Refusal | Cut | None]:
    """Return the quirk of a store that answers SlowDown to the first writes."""
    left = iter(range(times))

    def quirk(request: Request) -> Refusal | None:
        if request.method in ("PUT", "POST") and next(left, None) is not None:
            return Refusal(status=503, code="SlowDown")
        return None

    return quirk


def hangs(seconds: float, *, at: str) -> Callable[[Request], Refusal | Cut | None]:
    """Return the quirk of a store that does not answer writes of a key for a while."""

    def quirk(request: Request) -> Refusal | None:
        if request.method == "PUT" and at in request.path:
            return Refusal(status=500, code="InternalError", seconds=seconds)
        return None

    return quirk


class CutsAnswers:
    """Breaks off the first answers to each read of a certain kind."""

    def __init__(self, at: str, *, times: int) -> None:
        self._at, self._times = at, times
        self.cut: dict[str, int] = {}

    def __call__(self, request: Request) -> Cut | None:
        if request.method != "GET" or self._at not in request.path:
            return None
        self.cut[request.path] = self.cut.get(request.path, 0) + 1
        return Cut() if self.cut[request.path] <= self._times else None


class Forgetful:
    """Reads show what was there at the first look for a while: eventual consistency."""

    def __init__(self) -> None:
        self._overwritten: set[str] = set()

    def __call__(self, request: Request) -> Refusal | None:
        if request.method == "PUT":
            self._overwritten.add(request.path)
        if request.method == "GET" and request.path in self._overwritten:
            return Refusal(status=404, code="NoSuchKey")
        return None
