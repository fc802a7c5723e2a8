"""The records of one account and Region, and the passage of their states."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from training_storage.testing.local_aws.fsx.control import Control

Record = dict[str, Any]


@dataclass(kw_only=True)
class Store:
    """File systems, associations, tasks and backups, keyed by id.

    A record holds what the API shows. A key that begins with an underscore is ours: ``_due`` is when the record moves
    on (seconds since the epoch), ``_next`` the function that moves it.
    """

    control: Control = field(default_factory=Control)
    file_systems: dict[str, Record] = field(default_factory=dict)
    associations: dict[str, Record] = field(default_factory=dict)
    tasks: dict[str, Record] = field(default_factory=dict)
    backups: dict[str, Record] = field(default_factory=dict)

    def later(
        self, record: Record, move: Callable[[], None], *, at_once: bool = False, seconds: float | None = None
    ) -> None:
        """Move a record on after some seconds, by default the transition time, or now."""
        if at_once:
            move()
            return
        record["_due"] = time.time() + (self.control.transition_seconds if seconds is None else seconds)
        record["_next"] = move

    def tick(self) -> None:
        """Move on every record whose time has come."""
        now = time.time()
        for kind in (self.file_systems, self.associations, self.tasks, self.backups):
            for record in list(kind.values()):
                while record.get("_due") is not None and record["_due"] <= now:
                    move = record.pop("_next")
                    record["_due"] = None
                    move()

    def associations_of(self, file_system_id: str) -> list[Record]:
        """Return the associations of a file system, in the order they were made."""
        return [record for record in self.associations.values() if record["FileSystemId"] == file_system_id]

    def misconfiguration(self, association: Record) -> str | None:
        """Return why an association is MISCONFIGURED, or None if it is not."""
        path = "/" + str(association["FileSystemPath"]).strip("/")
        return next((text for name, text in self.control.misconfigured.items() if "/" + name.strip("/") == path), None)

    def running_tasks_of(self, file_system_id: str) -> list[Record]:
        """Return the tasks of a file system that have not ended."""
        return [
            record
            for record in self.tasks.values()
            if record["FileSystemId"] == file_system_id and record["Lifecycle"] in ("PENDING", "EXECUTING", "CANCELING")
        ]


def shown(record: Record) -> Record:
    """Return a record as the API shows it."""
    return {key: value for key, value in record.items() if not key.startswith("_")}
