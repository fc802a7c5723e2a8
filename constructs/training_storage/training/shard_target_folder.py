"""Shards in a folder: made in a folder beside them, then renamed."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from training_storage.training.shard_claim import SHARD_NAME, WORK_NAME, locked, occupied, sync_folder, write_whole
from training_storage.training.shard_digest import file_sha256
from training_storage.training.shard_errors import ShardInputError
from training_storage.training.shard_index import INDEX_NAME, ShardIndex, ShardRecord

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, kw_only=True)
class FolderTarget:
    """A folder of a file system."""

    path: str

    @property
    def name(self) -> str:
        """The path without links."""
        return self.path

    @property
    def _work(self) -> Path:
        return Path(self.path, WORK_NAME)

    @property
    def _marker(self) -> Path:
        return self._work / "run.json"

    @contextmanager
    def claimed(self, run: str) -> Iterator[None]:
        """Hold a lock on the folder; see `Target`."""
        try:
            self._work.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ShardInputError(f"the target {self.path!r} cannot be written ({error.strerror}).") from None
        with locked(self._work, self.path):
            try:
                self._take_over(run)
            except BaseException:
                if not self._marker.exists():
                    # Nothing of ours stays in a folder of somebody else.
                    shutil.rmtree(self._work)
                raise
            yield

    def _take_over(self, run: str) -> None:
        index = self._index()
        names = [path.name for path in Path(self.path).iterdir()]
        strangers = sorted(
            name for name in names if name not in (WORK_NAME, INDEX_NAME) and not SHARD_NAME.fullmatch(name)
        )
        known = self._begun_run() if self._marker.exists() else index and index.run
        begun = known is not None or any(SHARD_NAME.fullmatch(name) for name in names)
        if strangers or (begun and known != run):
            raise occupied(self.path, strangers[0] if strangers else None)
        for left in self._work.glob("*.tmp"):
            left.unlink()
        write_whole(self._marker, json.dumps({"run": run}) + "\n")

    def _begun_run(self) -> str:
        try:
            return str(json.loads(self._marker.read_bytes())["run"])
        except (ValueError, TypeError, KeyError):
            # Ours is whole or not there: this is somebody else's.
            raise occupied(self.path, f"{WORK_NAME}/{self._marker.name}") from None

    def staging(self, name: str) -> Path:
        """Return a file in the folder itself, so that publishing is renaming."""
        return self._work / f"{name}.{os.getpid()}.tmp"

    def publish(self, staged: Path, record: ShardRecord, *, run: str) -> None:
        """Write the record, then rename: a shard without a record is made again, a record without a shard as well."""
        del run  # stands in the folder once
        with staged.open("rb") as file:
            os.fsync(file.fileno())
        write_whole(self._work / f"{record.name}.json", json.dumps(record.values()) + "\n")
        staged.rename(Path(self.path, record.name))
        sync_folder(self.path)

    def finished(self, name: str, *, run: str) -> ShardRecord | None:
        """Return the record if the shard has the size and the checksum in it."""
        del run
        shard, record = Path(self.path, name), self._noted(name)
        if record is None or not shard.exists() or shard.stat().st_size != record.bytes:
            return None
        return record if file_sha256(shard) == record.sha256 else None

    def _noted(self, name: str) -> ShardRecord | None:
        noted, index = self._work / f"{name}.json", self._index()
        if noted.exists():
            try:
                return ShardRecord.from_values(json.loads(noted.read_bytes()))
            except (ValueError, ShardInputError):
                # Whatever has altered it: the shard is made again.
                return None
        return next((record for record in index.shards if record.name == name), None) if index else None

    def _index(self) -> ShardIndex | None:
        path = Path(self.path, INDEX_NAME)
        return ShardIndex.from_json(path.read_bytes(), place=str(path)) if path.exists() else None

    def publish_index(self, index: ShardIndex) -> None:
        """Write the index in one step, then remove what only an unfinished packing needs."""
        there = self._index()
        if there is None:
            draft = self._work / f"{INDEX_NAME}.tmp"
            write_whole(draft, index.to_json())
            Path(self.path, INDEX_NAME).hardlink_to(draft)
            sync_folder(self.path)
        elif there != index:
            raise occupied(self.path, INDEX_NAME)
        shutil.rmtree(self._work)
