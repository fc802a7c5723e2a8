"""Create, change and delete data repository associations."""

import time
from collections.abc import Mapping
from typing import Any

from training_storage.testing.local_aws.fsx import association_rules as rules
from training_storage.testing.local_aws.fsx import tasks
from training_storage.testing.local_aws.fsx.errors import bad_request, not_found
from training_storage.testing.local_aws.fsx.store import Record, Store
from training_storage.testing.local_aws.fsx.surroundings import Surroundings
from training_storage.testing.local_aws.resource_attributes import arn_of, new_id

_TYPE = "AWS::FSx::DataRepositoryAssociation"


def create(
    *,
    store: Store,
    surroundings: Surroundings,
    file_system: Record,
    request: Mapping[str, Any],
    at_once: bool = False,
) -> Record:
    """Link a directory of a file system to a prefix of a bucket."""
    if file_system["Lifecycle"] not in ("AVAILABLE", "UPDATING"):
        raise bad_request(f"The file system is in the {file_system['Lifecycle']} state.")
    file_system_id = file_system["FileSystemId"]
    checked = rules.check_association(
        request=request,
        file_system=file_system,
        existing=store.associations_of(file_system_id),
        surroundings=surroundings,
    )
    if file_system["LustreConfiguration"].get("AutomaticBackupRetentionDays"):
        raise bad_request("Data repository associations are not supported on file systems with automatic backups.")
    association_id = new_id(_TYPE)
    account, region = surroundings.account(), surroundings.region()
    arn = arn_of(type_name=_TYPE, identifier=f"{file_system_id}/{association_id}", account=account, region=region)
    record: Record = {
        "AssociationId": association_id,
        "ResourceARN": arn,
        "FileSystemId": file_system_id,
        "Lifecycle": "CREATING",
        **checked,
        "Tags": [dict(tag) for tag in request.get("Tags") or []],
        "CreationTime": time.time(),
    }
    store.associations[association_id] = record

    def ready() -> None:
        record["Lifecycle"] = "AVAILABLE"
        if record["BatchImportMetaDataOnCreate"] and not store.running_tasks_of(file_system_id):
            tasks.create(
                store=store,
                surroundings=surroundings,
                file_system=file_system,
                request={"Type": "IMPORT_METADATA_FROM_REPOSITORY", "Report": {"Enabled": False}},
            )

    store.later(record, ready, at_once=at_once)
    return record


def find(store: Store, association_id: str) -> Record:
    """Return an association.

    Raises
    ------
    FsxError
        ``DataRepositoryAssociationNotFound``.
    """
    record = store.associations.get(association_id)
    if record is None:
        raise not_found("DataRepositoryAssociation", association_id)
    return record


def update(*, store: Store, record: Record, request: Mapping[str, Any], at_once: bool = False) -> Record:
    """Change the chunk size or the policies of an association."""
    if record["Lifecycle"] != "AVAILABLE":
        raise bad_request(f"The data repository association is in the {record['Lifecycle']} state.")
    if request.get("ImportedFileChunkSize") is not None:
        record["ImportedFileChunkSize"] = rules.checked_chunk(request["ImportedFileChunkSize"])
    if request.get("S3") is not None:
        kept = {name: policy for name, policy in record["S3"].items() if name not in request["S3"]}
        record["S3"] = {**kept, **rules.checked_policies(request["S3"])}
    if not at_once:
        record["Lifecycle"] = "UPDATING"
        store.later(record, lambda: record.update(Lifecycle="AVAILABLE"))
    return record


def seen(store: Store, record: Record) -> Record:
    """Return an association as it looks from outside: MISCONFIGURED where a test says so."""
    message = store.misconfiguration(record)
    if message is None or record["Lifecycle"] != "AVAILABLE":
        return record
    return {**record, "Lifecycle": "MISCONFIGURED", "FailureDetails": {"Message": message}}


def delete(*, store: Store, record: Record, at_once: bool = False) -> Record:
    """Unlink a directory; its files stay in the file system."""
    record["Lifecycle"] = "DELETING"

    def gone() -> None:
        store.associations.pop(record["AssociationId"], None)

    store.later(record, gone, at_once=at_once)
    return record
