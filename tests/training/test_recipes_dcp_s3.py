"""How torch's distributed checkpoint reaches S3: size of parts, and what the store is sent."""

from __future__ import annotations

import gc
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from training_storage.planning.units import GIB, MIB
from training_storage.training.checkpoint_errors import CheckpointError
from training_storage.training.contract import Endpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

for _module in ("torch", "s3torchconnector", "tenacity"):
    pytest.importorskip(_module, reason="pip install 'training-storage[training]' 's3torchconnector[dcp]'")

from training_storage.training.recipes import dcp_s3  # noqa: E402 -- what it needs may be missing


@pytest.mark.parametrize(
    ("largest_file_bytes", "part_size_mib", "mib"),
    [
        (0, 8, 8),
        (12 * GIB, 8, 8),
        (12 * GIB, 1, 5),
        (60 * GIB, 8, 13),  # twice 60 GiB in 10,000 parts
        (1000 * GIB, 8, 205),
    ],
)
def test_parts_are_as_configured_unless_a_file_would_have_too_many(
    largest_file_bytes: int, part_size_mib: int, mib: int
) -> None:
    assert dcp_s3.part_bytes(largest_file_bytes, part_size_mib=part_size_mib) == mib * MIB


def test_a_file_that_no_upload_takes_is_refused_before_the_first_byte() -> None:
    with pytest.raises(CheckpointError, match="save from more ranks"):
        dcp_s3.part_bytes(30_000 * GIB, part_size_mib=8)


@dataclass(frozen=True, kw_only=True)
class Request:
    method: str
    path: str
    query: str
    headers: list[str]


class _Store(BaseHTTPRequestHandler):
    """Takes uploads in parts and remembers what it was sent."""

    seen: list[Request]

    def do_PUT(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        kind = "Initiate" if self.path.endswith("?uploads") else "Complete"
        inside = "<Bucket>bucket</Bucket><Key>key</Key><UploadId>1</UploadId><ETag>0</ETag>"
        self._answer(f"<{kind}MultipartUploadResult>{inside}</{kind}MultipartUploadResult>")

    def do_DELETE(self) -> None:
        self._answer()

    def _answer(self, text: str = "") -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        path, _, query = self.path.partition("?")
        names = [name.lower() for name in self.headers]
        self.seen.append(Request(method=self.command, path=path, query=query, headers=names))
        self.send_response(200)
        self.send_header("ETag", '"0123456789abcdef"')
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name of the base class
        """Say nothing."""


@pytest.fixture
def store() -> Iterator[tuple[str, list[Request]]]:
    seen: list[Request] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Store", (_Store,), {"seen": seen}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    server.server_close()


def test_a_store_that_is_not_aws_gets_its_own_address_and_no_trailing_checksum(
    store: tuple[str, list[Request]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, seen = store
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    endpoint = Endpoint(url=url, addressing_style="auto", checksums="when_required")
    client = dcp_s3.client(endpoint, region="us-east-1", part=8 * MIB)
    files = dcp_s3.RecordingS3FileSystem(client)
    with files.create_stream("s3://bucket/step-1/__0_0.distcp", "wb") as stream:
        stream.write(b"abc")
    assert [request.method for request in seen] == ["POST", "PUT", "POST"]
    assert {request.path for request in seen} == {"/bucket/step-1/__0_0.distcp"}
    words = ("checksum", "trailer", "content-encoding")
    assert not [name for request in seen for name in request.headers if any(word in name for word in words)]
    [file] = files.written.files()
    assert (file.path, file.bytes) == ("__0_0.distcp", 3)


def test_a_write_that_fails_completes_no_upload_and_says_why(
    store: tuple[str, list[Request]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, seen = store
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    endpoint = Endpoint(url=url, addressing_style="path", checksums="when_required")
    client = dcp_s3.client(endpoint, region="us-east-1", part=8 * MIB)
    files = dcp_s3.RecordingS3FileSystem(client)

    def write_half() -> None:
        with files.create_stream("s3://bucket/step-1/__0_0.distcp", "wb") as stream:
            stream.write(b"abc")
            raise RuntimeError("the device is gone")

    with pytest.raises(RuntimeError, match="the device is gone"):
        write_half()
    del client
    gc.collect()
    assert not [request for request in seen if request.method == "POST" and "uploadId" in request.query]
    assert files.written.files() == ()
