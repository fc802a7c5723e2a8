"""The CloudWatch metrics of file systems, as far as something decides by them."""

import time

from training_storage.testing.local_aws.fsx.store import Record, Store
from training_storage.testing.local_aws.fsx.surroundings import Surroundings

# FSx gives a value a minute; here there is one as often as somebody asks, so that tests need not wait for it.
_SECONDS = 0.3


def publish(store: Store, surroundings: Surroundings) -> None:
    """Write the metrics of every available file system, unless it has just been done."""
    for record in store.file_systems.values():
        due = record.get("_measured", 0.0) + _SECONDS
        if record["Lifecycle"] == "AVAILABLE" and time.time() >= due:
            record["_measured"] = time.time()
            _publish(store, surroundings, record)


def _publish(store: Store, surroundings: Surroundings, record: Record) -> None:
    identifier = record["FileSystemId"]
    control = store.control
    there = sum(len(body.encode()) for body in control.files_of(identifier).values())
    written = max(there - record.get("_bytes", 0), 0) + control.client_writes.get(identifier, 0.0)
    record["_bytes"] = there
    dimensions = {"FileSystemId": identifier}
    surroundings.put_metric(name="DataWriteBytes", value=written, unit="Bytes", dimensions=dimensions)
    if control.queue_age_seconds is not None and store.associations_of(identifier):
        surroundings.put_metric(
            name="AgeOfOldestQueuedMessage",
            value=control.queue_age_seconds,
            unit="Seconds",
            dimensions={**dimensions, "Publisher": "AutoExport"},
        )
