"""The first rung: whether each place of the contract does what training relies on, and how fast, from this node.

Writes objects of its own under a hidden name, and deletes them at the end, also when it is interrupted.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import os
import time
import uuid
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from training_storage.checkpoint_format import POINTER_NAME
from training_storage.planning.errors import InvalidJobError
from training_storage.planning.units import GB, GIB, MIB, SECONDS_PER_MINUTE
from training_storage.training.capability import WEAKER
from training_storage.training.capability_probe import PROBE_PREFIX, probe
from training_storage.training.checkpoint_errors import CheckpointError
from training_storage.training.checkpoint_path_place import PathPlace
from training_storage.training.checkpoint_place import Place, open_place
from training_storage.training.place_text import S3_SCHEME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from training_storage.training.contract import Endpoint, StorageContract

SIZE_MIB: Final = 256
SECONDS: Final = 10.0
#: Most requests at once, however many loader processes the preset has: more than this one interpreter drives.
_MOST_REQUESTS: Final = 64
_DEFAULT_PART_MIB: Final = 8
_OLD, _NEW, _STALE = b"old", b"new value", b"stale"


class Result(StrEnum):
    """Of a check."""

    OK = "ok"
    FAILED = "failed"
    #: It works, and slower than the job needs.
    SLOW = "slow"
    #: It cannot be tried, because an earlier check failed.
    SKIPPED = "skipped"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check.

    Parameters
    ----------
    name
        What was tried.
    result
        How it went.
    detail
        Why, or what was measured.
    gb_per_s, needed_gb_per_s
        Of the checks of speed; what this node needs is its share of the job's.
    """

    name: str
    result: Result
    detail: str = ""
    gb_per_s: float | None = None
    needed_gb_per_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Target:
    """A place to verify.

    Parameters
    ----------
    role
        lake, s3-express, lustre, scratch or mountpoint; for places that the caller named, ``place``.
    where
        URI or path.
    read_only
        Nothing is written.
    mount
        Path that must be a mount point; None where a plain folder will do.
    write_gb_per_s, read_gb_per_s
        What this node needs; None where nothing says it.
    """

    role: str
    where: str
    read_only: bool = False
    mount: str | None = None
    write_gb_per_s: float | None = None
    read_gb_per_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What was found at one place."""

    target: Target
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether everything is well."""
        return all(check.result == Result.OK for check in self.checks)


def targets_of(contract: StorageContract, plan: Mapping[str, Any] | None = None) -> list[Target]:
    """Return the places of a contract, each with what this node needs of it.

    Parameters
    ----------
    contract
        Its checkpoints must be written within their interval, each node its share.
    plan
        A plan (``training-storage plan --json``), for the rates of reading data and of restoring.
    """
    checkpoints, nodes = contract.checkpoints, contract.job.instances
    share = checkpoints.size_gib * GIB / GB / nodes
    write = share / (checkpoints.interval_minutes * SECONDS_PER_MINUTE)
    durable = share / (checkpoints.durable_interval_minutes * SECONDS_PER_MINUTE)
    demand = _demand(plan)
    data, restore = (demand.get(name, 0.0) / nodes for name in ("read_gb_per_s", "restore_gb_per_s"))
    datasets = contract.location("datasets")

    def target(role: str, where: str, places: Iterable[str], *, mount: str | None = None) -> Target:
        first = checkpoints.write_to in places
        read = max(data if datasets in places else 0.0, restore if first else 0.0)
        written = write if first else durable if checkpoints.durable_uri in places else None
        return Target(role=role, where=where, mount=mount, write_gb_per_s=written, read_gb_per_s=read or None)

    lake, lustre, express = contract.s3, contract.lustre, contract.s3_express
    targets = [target("lake", lake.uris["checkpoints"], lake.uris.values())]
    if express is not None:
        any_uri = next(iter(express.uris.values()), f"{S3_SCHEME}{express.bucket}/")
        targets.append(target("s3-express", express.uris.get("checkpoints", any_uri), express.uris.values()))
    if lustre is not None:
        where = lustre.paths.get("checkpoints", lustre.mount_path)
        targets.append(target("lustre", where, lustre.paths.values(), mount=lustre.mount_path))
    targets += [
        Target(role="scratch", where=contract.scratch.path),
        Target(role="mountpoint", where=contract.mountpoint.path, read_only=True, mount=contract.mountpoint.path),
    ]
    return targets


def verify(
    targets: Sequence[Target],
    *,
    endpoint: Endpoint | None = None,
    region: str | None = None,
    part_size_mib: int = _DEFAULT_PART_MIB,
    requests: int = 16,
    size_mib: int = SIZE_MIB,
    seconds: float = SECONDS,
) -> Iterator[Verified]:
    """Verify places one after the other.

    Parameters
    ----------
    targets
        See `targets_of`.
    endpoint, region
        Of S3.
    part_size_mib, requests
        The loader's preset: size of a request, and how many at once (at most 64).
    size_mib, seconds
        Bounds of each measurement of speed: it ends with whichever comes first.
    """
    if size_mib < part_size_mib or not seconds > 0:
        raise InvalidJobError(
            f"size_mib must be at least the part size {part_size_mib} and seconds above 0, got: {size_mib} and"
            f" {seconds}"
        )
    speed = _Speed(
        part=part_size_mib * MIB,
        parts=size_mib // part_size_mib,
        threads=min(requests, _MOST_REQUESTS),
        seconds=seconds,
    )
    for target in targets:
        checks: list[Check] = []
        try:
            checks += _mounted(target)
            if target.read_only:
                checks.append(_listed(Path(target.where)))
            else:
                place = _place(target, endpoint, region)
                checks += _Trial(place, target, speed).run()
        except CheckpointError as error:
            checks.append(Check(name="open", result=Result.FAILED, detail=str(error)))
        except OSError as error:
            # Of what is asked of the system directly: whether a path is mounted, or is a folder.
            detail = f"{target.where}: {error.strerror or error}"
            checks.append(Check(name="open", result=Result.FAILED, detail=detail))
        yield Verified(target=target, checks=tuple(checks))


def _place(target: Target, endpoint: Endpoint | None, region: str | None) -> Place:
    place = open_place(target.where, endpoint=endpoint, region=region)
    if isinstance(place, PathPlace) and not place.local_folder.is_dir():
        mounted = f": {target.mount} is mounted without it" if target.mount else ""
        if target.mount is None or not place.local_folder.parent.is_dir():
            raise CheckpointError(f"{target.where} is no folder{mounted}")
    return place


def _mounted(target: Target) -> list[Check]:
    if target.mount is None:
        return []
    if not Path(target.mount).is_dir():
        raise CheckpointError(f"{target.mount} does not exist")
    if not os.path.ismount(target.mount):
        return [Check(name="mounted", result=Result.FAILED, detail=f"{target.mount} is a folder, nothing is mounted")]
    return [Check(name="mounted", result=Result.OK)]


def _listed(folder: Path) -> Check:
    try:
        names = [entry.name for entry in itertools.islice(os.scandir(folder), 100)]
    except OSError as error:
        return Check(name="read", result=Result.FAILED, detail=f"{folder} cannot be listed ({error.strerror})")
    return Check(name="read", result=Result.OK, detail=f"{len(names)} entries" if len(names) < 100 else "")  # noqa: PLR2004


@dataclass(frozen=True, kw_only=True)
class _Speed:
    part: int
    parts: int
    threads: int
    seconds: float


class _Trial:
    """All checks of one place."""

    def __init__(self, place: Place, target: Target, speed: _Speed) -> None:
        self._place, self._target, self._speed = place, target, speed
        self._folder = f"{PROBE_PREFIX}{uuid.uuid4().hex}"
        self._made: list[str] = []

    def run(self) -> Iterator[Check]:
        """Yield each check. Whatever was written is deleted, whether they end, fail or are interrupted."""
        steps: tuple[Callable[[], list[Check]], ...] = (
            self._write_and_read,
            self._create_only,
            self._stale,
            self._delete,
            self._compatible,
            self._rates,
        )
        found: list[Check] = []
        try:
            for step in steps:
                try:
                    found += step()
                except CheckpointError as error:
                    found.append(Check(name=_NAMES[step.__name__], result=Result.FAILED, detail=str(error)))
                    if step == self._write_and_read:
                        found += [
                            Check(name=_NAMES[later.__name__], result=Result.SKIPPED, detail="writing failed")
                            for later in steps[1:4]
                        ]
                        break
        finally:
            left = self._clean_up()
        if left:
            found.append(Check(name="clean up", result=Result.FAILED, detail=f"not deleted: {', '.join(left[:3])}"))
        yield from found

    def _key(self, name: str) -> str:
        """Return a key that will be deleted, whatever happens from now on."""
        key = f"{self._folder}/{name}"
        self._made.append(key)
        return key

    def _clean_up(self) -> list[str]:
        """Delete all; return what could not be."""

        def delete(key: str) -> str | None:
            try:
                self._place.delete(key)
            except (CheckpointError, OSError):
                return f"{self._place.uri}{key}"
            return None

        with concurrent.futures.ThreadPoolExecutor(self._speed.threads) as pool:
            left = [key for key in pool.map(delete, self._made) if key is not None]
        if self._place.local_folder is not None:
            with contextlib.suppress(OSError):
                (self._place.local_folder / self._folder).rmdir()
        return left

    def _holds(self, key: str, data: bytes) -> bool:
        found = self._place.read(key)
        return found is not None and found.data == data

    def _write_and_read(self) -> list[Check]:
        key = self._key("read")
        with _file_errors(self._place):
            written = self._place.create(key, _OLD)
            read = self._holds(key, _OLD)
            listed = "read" in self._place.files(self._folder)
        return [
            _check("write", written, "the store says that a new name exists"),
            _check("read", read, "what was written a moment ago is not read"),
            _check("list", listed, "what was written a moment ago is not listed"),
        ]

    def _create_only(self) -> list[Check]:
        key = self._key("create-only")
        with _file_errors(self._place):
            self._place.create(key, _OLD)
            refused = not self._place.create(key, _NEW)
            kept = self._holds(key, _OLD)
        return [_check("conditional write", refused and kept, WEAKER["create_only"])]

    def _stale(self) -> list[Check]:
        key = self._key(POINTER_NAME)
        with _file_errors(self._place):
            made = self._place.swap(key, _OLD, version=None)
            seen = self._place.read(key)
            version = None if seen is None else seen.version
            swapped = made and self._place.swap(key, _NEW, version=version)
            refused = not self._place.swap(key, _STALE, version=version)
            kept = self._holds(key, _NEW)
        return [
            _check("swap", swapped, "a file that nobody changed could not be swapped"),
            _check("stale write refused", refused and kept, WEAKER["compare_and_swap"]),
        ]

    def _delete(self) -> list[Check]:
        key = self._key("deleted")
        with _file_errors(self._place):
            self._place.create(key, _OLD)
            self._place.delete(key)
            gone = self._place.read(key) is None
        return [_check("delete", gone, "what was deleted is still read")]

    def _compatible(self) -> list[Check]:
        """Ask an object store for what only large files and archiving need."""
        if self._place.local_folder is not None:
            return []
        from training_storage.training.checkpoint_s3_place import S3Place  # noqa: PLC0415 -- a path needs no SDK

        if not isinstance(self._place, S3Place):
            return []
        found = probe(self._place)
        return [
            _check(name.replace("_", " "), found.has(name), f"{getattr(found, name)}: {WEAKER[name]}")
            for name in ("ranged_read", "multipart", "multipart_create_only", "copy")
        ]

    def _rates(self) -> list[Check]:
        keys = [f"{self._folder}/part-{number}" for number in range(self._speed.parts)]
        # One copy of random bytes: nothing on the way can compress them.
        data = os.urandom(self._speed.part)

        def write_one(key: str) -> None:
            self._made.append(key)
            self._place.create(key, data)

        written, write = self._measured(keys, write_one)
        for key in written:
            self._forget_cached(key)
        _, read = self._measured(written, lambda key: self._place.read_range(key, 0, len(data)))
        return [
            _rate("write speed", write, self._target.write_gb_per_s),
            _rate("read speed", read, self._target.read_gb_per_s),
        ]

    def _measured(self, keys: Sequence[str], call: Callable[[str], object]) -> tuple[list[str], float]:
        """Call for as many keys as time allows; return those, and GB/s."""
        started = time.monotonic()
        done: list[str] = []

        def one(key: str) -> None:
            if time.monotonic() - started < self._speed.seconds:
                with _file_errors(self._place):
                    call(key)
                done.append(key)

        pool = concurrent.futures.ThreadPoolExecutor(self._speed.threads, thread_name_prefix="verify")
        try:
            for future in [pool.submit(one, key) for key in keys]:
                future.result()
        finally:
            # What is on its way must arrive before it can be deleted.
            pool.shutdown(wait=True, cancel_futures=True)
        return done, len(done) * self._speed.part / GB / (time.monotonic() - started)

    def _forget_cached(self, key: str) -> None:
        """Let the kernel drop what was just written: reading from memory says nothing of a disk."""
        if self._place.local_folder is not None:
            handle = os.open(self._place.local_folder / key, os.O_RDONLY)
            try:
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)


_NAMES: Final = {
    "_write_and_read": "write",
    "_create_only": "conditional write",
    "_stale": "stale write refused",
    "_delete": "delete",
    "_compatible": "multipart",
    "_rates": "speed",
}


@contextlib.contextmanager
def _file_errors(place: Place) -> Iterator[None]:
    """Turn what a file system raises into one line."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{place.uri}: {error.strerror or error}") from error


def _check(name: str, good: bool, otherwise: str) -> Check:  # noqa: FBT001 -- reads as a sentence
    return Check(name=name, result=Result.OK if good else Result.FAILED, detail="" if good else otherwise)


def _rate(name: str, measured: float, needed: float | None) -> Check:
    enough = needed is None or measured >= needed
    detail = f"{measured:.3g} GB/s" + ("" if needed is None else f", this node needs {needed:.3g}")
    return Check(
        name=name,
        result=Result.OK if enough else Result.SLOW,
        detail=detail,
        gb_per_s=measured,
        needed_gb_per_s=needed,
    )


def _demand(plan: Mapping[str, Any] | None) -> Mapping[str, float]:
    demand = None if plan is None else plan.get("demand")
    if plan is not None and not isinstance(demand, dict):
        raise InvalidJobError("--plan must name a plan (training-storage plan --json), got: a file without demand")
    return {
        name: float(value)
        for name, value in (demand or {}).items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
