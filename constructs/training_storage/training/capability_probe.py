"""Asks a store what it can do, on objects of its own below the place, which it deletes at the end."""

from __future__ import annotations

import contextlib
import dataclasses
import uuid
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from training_storage.planning.catalog.s3 import copy_limits
from training_storage.planning.units import MIB
from training_storage.training.capability import Answer, Capabilities
from training_storage.training.checkpoint_errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from training_storage.training.checkpoint_s3_place import S3Place

#: Of the folder of a probe, below the place; hidden, and no checkpoint's name.
PROBE_PREFIX: Final = ".probe-"
_FIRST, _SECOND, _THIRD = b"first", b"second!", b"the third"


def probe(place: S3Place, *, multipart: bool = True) -> Capabilities:
    """Return what the store at `place` can do.

    Parameters
    ----------
    place
        Where; the caller must be allowed to read, write and delete there.
    multipart
        Ask for uploads in parts too, which moves about 10 MiB.

    Raises
    ------
    CheckpointError
        If plain writing, reading or deleting fails: then nothing can be said of the rest.
    """
    return _Probe(place).run(multipart=multipart)


class _Probe:
    def __init__(self, place: S3Place) -> None:
        self._place = place
        self._folder = f"{PROBE_PREFIX}{uuid.uuid4().hex}"
        self._made: list[str] = []

    def run(self, *, multipart: bool) -> Capabilities:
        try:
            found = Capabilities(
                read_after_write=self._read_after_write(),
                ranged_read=self._ranged_read(),
                create_only=self._create_only(),
                compare_and_swap=self._compare_and_swap(),
                copy=self._copy(),
            )
            if multipart:
                found = dataclasses.replace(found, multipart=self._multipart())
                if found.has("multipart"):
                    found = dataclasses.replace(found, multipart_create_only=self._multipart_create_only())
                else:
                    found = dataclasses.replace(found, multipart_create_only=found.multipart)
            return found
        finally:
            for key in self._made:
                with contextlib.suppress(CheckpointError):
                    self._place.delete(key)

    def _key(self, name: str) -> str:
        """Return a key that will be deleted, whatever happens from now on."""
        key = f"{self._folder}/{name}"
        self._made.append(key)
        return key

    def _holds(self, key: str, data: bytes) -> bool:
        content = self._place.read(key)
        return content is not None and content.data == data

    def _read_after_write(self) -> Answer:
        key = self._key("read-after-write")
        self._place.put(key, _FIRST)
        seen = self._holds(key, _FIRST) and "read-after-write" in self._place.files(self._folder)
        self._place.put(key, _SECOND)
        seen = self._holds(key, _SECOND) and seen
        self._place.delete(key)
        return Answer.YES if seen and self._place.read(key) is None else Answer.IGNORED

    def _ranged_read(self) -> Answer:
        key = self._key("ranged-read")
        self._place.put(key, _SECOND)
        try:
            return Answer.YES if bytes(self._place.read_range(key, 1, 4)) == _SECOND[1:4] else Answer.IGNORED
        except CheckpointError:
            return Answer.REFUSED

    def _create_only(self) -> Answer:
        key = self._key("create-only")
        try:
            if not self._place.put_new(key, _FIRST):
                return Answer.REFUSED
            refused = not self._place.put_new(key, _SECOND)
        except CheckpointError:
            return Answer.REFUSED
        return Answer.YES if refused and self._holds(key, _FIRST) else Answer.IGNORED

    def _compare_and_swap(self) -> Answer:
        key = self._key("compare-and-swap")
        self._place.put(key, _FIRST)
        first = self._place.read(key)
        if first is None or not first.version:
            return Answer.REFUSED
        try:
            if not self._place.put_over(key, _SECOND, version=first.version):
                return Answer.REFUSED
            refused = not self._place.put_over(key, _THIRD, version=first.version)
        except CheckpointError:
            return Answer.REFUSED
        return Answer.YES if refused and self._holds(key, _SECOND) else Answer.IGNORED

    def _copy(self) -> Answer:
        source, target = self._key("copy-source"), self._key("copy-target")
        self._place.put(source, _FIRST)
        try:
            self._place.copy(source, target)
        except CheckpointError:
            return Answer.REFUSED
        return Answer.YES if self._holds(target, _FIRST) else Answer.IGNORED

    def _multipart(self) -> Answer:
        key = self._key("multipart")
        try:
            self._upload(key, create_only=False)
        except CheckpointError:
            return Answer.REFUSED
        return Answer.YES if self._size(key) == _TwoParts().size else Answer.IGNORED

    def _multipart_create_only(self) -> Answer:
        key = self._key("multipart-create-only")
        self._place.put(key, _FIRST)
        try:
            refused = not self._upload(key, create_only=True)
        except CheckpointError:
            # A store that takes parts but not the condition says so at the end.
            return Answer.REFUSED
        return Answer.YES if refused and self._holds(key, _FIRST) else Answer.IGNORED

    def _upload(self, key: str, *, create_only: bool) -> bool:
        return self._place.upload(key, _TwoParts(), send=_now, create_only=create_only)

    def _size(self, key: str) -> int | None:
        state = self._place.files(self._folder).get(key.partition("/")[2])
        return None if state is None else state.bytes


class _TwoParts:
    """The smallest file in two parts."""

    def __init__(self) -> None:
        self.size = copy_limits().part_mib_minimum * MIB + len(_FIRST)

    def __iter__(self) -> Iterator[bytes]:
        yield bytes(self.size - len(_FIRST))
        yield _FIRST


def _now(call: Callable[[], Any]) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(call())
    return future
