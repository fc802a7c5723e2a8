"""A slow S3 on loopback that counts its requests, small data sets, and a contract for this machine."""

from __future__ import annotations

import http.client
import os
import threading
import time
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from training_storage.planning import TrainingJob, plan_storage
from training_storage.planning.contract import DeployedValues, Endpoint, storage_contract
from training_storage.training.contract import StorageContract
from training_storage.training.shard_pack import pack_shards
from training_storage.training.shard_s3 import aws_variables

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from training_storage.testing.local_aws import LocalAws
    from training_storage.training.loader_settings import LoaderSettings
    from training_storage.training.shard_index import ShardIndex

_HOP_BY_HOP = {"connection", "transfer-encoding", "keep-alive"}


class SlowStore:
    """Passes requests on to an S3 server after a while: what every first byte of S3 takes."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self._server = server
        self.requests: list[tuple[str, str]] = []
        self.latency_s = 0.0

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"


@contextmanager
def slow_store(endpoint_url: str, *, latency_s: float) -> Iterator[SlowStore]:
    """Serve on loopback; every answer begins `latency_s` after its request."""
    target = urlsplit(endpoint_url).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            store.requests.append((self.command, self.path))
            began = time.monotonic()
            while (left := began + store.latency_s - time.monotonic()) > 0:
                time.sleep(min(left, 0.1))
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            upstream = http.client.HTTPConnection(target, timeout=30)
            try:
                upstream.request(self.command, self.path, body=body or None, headers=dict(self.headers.items()))
                answer = upstream.getresponse()
                content = answer.read()
                self.send_response_only(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in _HOP_BY_HOP and (name.lower() != "content-length" or self.command == "HEAD"):
                        self.send_header(name, value)
                if self.command != "HEAD":
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            finally:
                upstream.close()

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815 - the server's names

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    store = SlowStore(server)
    store.latency_s = latency_s
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()


def contract(
    scratch: Path,
    *,
    endpoint_url: str | None = None,
    addressing_style: str = "auto",
    accelerators: int = 1,
    **loader: Any,
) -> StorageContract:
    """Return a contract of one node whose scratch space is `scratch`; `loader` changes keys of that section."""
    values = storage_contract(
        plan_storage(TrainingJob(instances=1, region="us-east-1")),
        deployed=DeployedValues(bucket="lake", kms_key_arn="arn:aws:kms:us-east-1:000000000000:key/lake"),
        engine="ec2",
        endpoint=Endpoint(url=endpoint_url, addressing_style=addressing_style),
    )
    values["job"]["accelerators_per_instance"] = accelerators
    values["loader"] |= {"cache_path": str(scratch / "cache"), **loader}
    return StorageContract.from_dict(values)


def small_files(count: int, *, size: int = 24) -> dict[str, bytes]:
    """Return the contents of `count` samples of two files each, by path, in a few folders."""
    files: dict[str, bytes] = {}
    for number in range(count):
        name = f"part-{number % 3}/{number:06d}"
        files[f"{name}.cls"] = str(number % 10).encode()
        files[f"{name}.bin"] = (f"{number:06d}-".encode() * (size // 7 + 1))[:size]
    return files


def written(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write `files` below `folder` and return it."""
    for path, content in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return folder


def packed(folder: Path, files: Mapping[str, bytes], *, shards: int, seed: int = 0) -> ShardIndex:
    """Pack `files` into ``folder/shards``."""
    source = written(folder / "files", files)
    return pack_shards(source=str(source), target=str(folder / "shards"), shards=shards, seed=seed, processes=2)


def key_of(sample: dict[str, Any]) -> str:
    """Return the key of a sample: a transform for tests, of a module so that it travels to other processes."""
    return str(sample["__key__"])


def content_of(sample: dict[str, Any]) -> tuple[str, bytes, bytes]:
    """Return a whole sample."""
    return str(sample["__key__"]), sample["cls"], sample["bin"]


def as_list(samples: list[Any]) -> list[Any]:
    """Return a batch as it is."""
    return samples


def uploaded(aws: LocalAws, bucket: str, prefix: str, folder: Path) -> str:
    """Upload a folder and return its URI."""
    client = aws.client("s3")
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            client.put_object(Bucket=bucket, Key=f"{prefix}{file.relative_to(folder)}", Body=file.read_bytes())
    return f"s3://{bucket}/{prefix}"


def read_through_preset(
    place: str, settings: LoaderSettings, store: SlowStore, *, workers: int, batch_size: int
) -> tuple[int, float]:
    """Read shards in processes that run already; return how many samples in how many seconds."""
    from training_storage.training.loader import shard_loader  # noqa: PLC0415 - needs torch

    loader = shard_loader(
        place, settings=settings, batch_size=batch_size, transform=key_of, collate=as_list, num_workers=workers
    )
    with at_once(store):
        for _ in loader:
            pass
    began = time.monotonic()
    count = sum(len(batch) for batch in loader)
    return count, time.monotonic() - began


@contextmanager
def at_once(store: SlowStore) -> Iterator[None]:
    """Let the store answer without waiting."""
    latency_s, store.latency_s = store.latency_s, 0.0
    try:
        yield
    finally:
        store.latency_s = latency_s


def read_one_by_one(uris: list[str], settings: LoaderSettings, store: SlowStore, *, workers: int) -> float:
    """Read small objects as a loader without shards does, one after the other in each process that runs already.

    Returns
    -------
    float
        Seconds.
    """
    from s3torchconnector import S3ClientConfig, S3MapDataset  # noqa: PLC0415
    from torch.utils.data import DataLoader  # noqa: PLC0415

    objects = S3MapDataset.from_objects(
        uris,
        region=settings.region,
        endpoint=settings.endpoint_url,
        transform=_whole,
        s3client_config=S3ClientConfig(**settings.s3_client_arguments()),
    )
    arguments = {**settings.data_loader_arguments(), "num_workers": workers}
    prepare = partial(_set_variables, aws_variables())
    loader: DataLoader[Any] = DataLoader(objects, batch_size=8, collate_fn=as_list, worker_init_fn=prepare, **arguments)
    with at_once(store):
        for _ in loader:
            pass
    began = time.monotonic()
    count = sum(len(batch) for batch in loader)
    seconds = time.monotonic() - began
    if count != len(uris):
        raise AssertionError(f"{len(uris)} objects were to be read, got: {count}")
    return seconds


def _whole(reader: Any) -> bytes:
    content: bytes = reader.read()
    return content


def _set_variables(variables: dict[str, str], _: int) -> None:
    os.environ.update(variables)
