"""The CloudWatch metrics of file systems, as far as something decides by them."""

import time

from training_storage.testing.local_aws.fsx.store import Record, Store
from training_storage.testing.local_aws.fsx.surroundings import Surroundings

# FSx gives a value a minute; here there is one as often as somebody asks, so that tests need not wait for it.
_SECONDS = 0.3
#: Seconds for which values are made up for afterwards, when nobody asked.
_CAUGHT_UP = 300


def publish(store: Store, surroundings: Surroundings) -> None:
    """Write the metrics of every available file system, unless it has just been done."""
    for record in store.file_systems.values():
        now, last = time.time(), record.get("_measured", 0.0)
        if record["Lifecycle"] == "AVAILABLE" and now >= last + _SECONDS:
            record["_measured"] = now
            for second in range(max(int(last) + 1, int(now) - _CAUGHT_UP), int(now)) if last else ():
                # FSx leaves no period out, and nobody may have asked for a while.
                _publish_use(surroundings, record["FileSystemId"], written=0.0, at=float(second))
            _publish(store, surroundings, record)


def _publish(store: Store, surroundings: Surroundings, record: Record) -> None:
    identifier = record["FileSystemId"]
    control = store.control
    there = sum(len(body.encode()) for body in control.files_of(identifier).values())
    written = max(there - record.get("_bytes", 0), 0) + control.client_writes.get(identifier, 0.0)
    record["_bytes"] = there
    dimensions = {"FileSystemId": identifier}
    _publish_use(surroundings, identifier, written=written)
    links = store.associations_of(identifier)
    exports = any((link.get("S3") or {}).get("AutoExportPolicy", {}).get("Events") for link in links)
    if exports or (links and control.queue_age_seconds is not None):
        surroundings.put_metric(
            name="AgeOfOldestQueuedMessage",
            value=control.queue_age_seconds or 0.0,
            unit="Seconds",
            dimensions={**dimensions, "Publisher": "AutoExport"},
        )


def _publish_use(surroundings: Surroundings, identifier: str, *, written: float, at: float | None = None) -> None:
    """Write what clients did: who writes also does one metadata operation at least."""
    dimensions = {"FileSystemId": identifier}
    for name, value, unit in (
        ("DataWriteBytes", written, "Bytes"),
        ("MetadataOperations", float(written > 0), "Count"),
    ):
        surroundings.put_metric(name=name, value=value, unit=unit, dimensions=dimensions, at=at)
