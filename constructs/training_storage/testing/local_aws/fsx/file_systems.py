"""Create, change and delete Lustre file systems."""

import secrets
import string
import time
from collections.abc import Mapping
from typing import Any

from training_storage.testing.local_aws.fsx import creation_rules as rules
from training_storage.testing.local_aws.fsx.errors import FsxError, bad_request, not_found
from training_storage.testing.local_aws.fsx.network_rules import check_network
from training_storage.testing.local_aws.fsx.store import Record, Store
from training_storage.testing.local_aws.fsx.surroundings import Surroundings
from training_storage.testing.local_aws.resource_attributes import arn_of, new_id, url_suffix_of

_TYPE = "AWS::FSx::FileSystem"
METADATA_NOT_SPECIFIED = (
    "Updating metadata configuration is not supported on file systems created without specifying a metadata "
    "configuration"
)
TASK_RUNNING = "The file system cannot be deleted while a data repository task is in the PENDING or EXECUTING state: "
_CAPACITY_QUOTAS = {"PERSISTENT_1": "L-C8640C82", "PERSISTENT_2": "L-8F1B9C74"}
_COUNT_QUOTAS = {"PERSISTENT_1": "L-9AFA1F09", "PERSISTENT_2": "L-FD6F2F22"}
_SCRATCH_CAPACITY, _SCRATCH_COUNT = "L-AD2FC696", "L-C48231E5"
_IOPS_PER_METADATA_SERVER = 12000


def create(*, store: Store, surroundings: Surroundings, request: Mapping[str, Any], at_once: bool = False) -> Record:
    """Make a file system; with ``at_once`` it is AVAILABLE already, as when CloudFormation has waited for it."""
    checked = rules.checked_file_system(request, region=surroundings.region())
    _check_quotas(store, checked)
    lustre = checked["LustreConfiguration"]
    subnet_ids = list(request.get("SubnetIds") or [])
    vpc_id, group_ids = check_network(
        surroundings=surroundings,
        subnet_ids=subnet_ids,
        group_ids=list(request.get("SecurityGroupIds") or []),
        efa=bool(lustre.get("EfaEnabled")),
    )
    region, account = surroundings.region(), surroundings.account()
    file_system_id = new_id(_TYPE)
    lustre["MountName"] = "fsx" if lustre["DeploymentType"] == "SCRATCH_1" else _mount_name()
    record: Record = {
        "OwnerId": account,
        "CreationTime": time.time(),
        "FileSystemId": file_system_id,
        "Lifecycle": "CREATING",
        "VpcId": vpc_id,
        "SubnetIds": subnet_ids,
        "NetworkInterfaceIds": surroundings.add_network_interfaces(
            subnet_id=subnet_ids[0], group_ids=group_ids, count=_servers(checked)
        ),
        "DNSName": f"{file_system_id}.fsx.{region}.{url_suffix_of(region)}",
        "ResourceARN": arn_of(type_name=_TYPE, identifier=file_system_id, account=account, region=region),
        "Tags": [dict(tag) for tag in request.get("Tags") or []],
        **checked,
        "_security_groups": group_ids,
        "_metadata_given": "MetadataConfiguration" in lustre,
    }
    if request.get("KmsKeyId"):
        record["KmsKeyId"] = request["KmsKeyId"]
    store.file_systems[file_system_id] = record
    store.later(record, lambda: record.update(Lifecycle="AVAILABLE"), at_once=at_once)
    return record


def find(store: Store, file_system_id: str) -> Record:
    """Return a file system.

    Raises
    ------
    FsxError
        ``FileSystemNotFound``.
    """
    record = store.file_systems.get(file_system_id)
    if record is None:
        raise not_found("FileSystem", file_system_id)
    return record


def update(*, record: Record, request: Mapping[str, Any]) -> Record:
    """Change a file system in place: capacity, throughput, metadata IOPS, logs, compression, backups, version."""
    if record["Lifecycle"] != "AVAILABLE":
        raise bad_request(f"The file system is in the {record['Lifecycle']} state and cannot be updated.")
    lustre = record["LustreConfiguration"]
    changes: Mapping[str, Any] = request.get("LustreConfiguration") or {}
    new_lustre = dict(lustre)
    target: Record = {}
    if request.get("StorageCapacity") is not None:
        target["StorageCapacity"] = _grown_capacity(record, int(request["StorageCapacity"]))
    if request.get("FileSystemTypeVersion"):
        target["FileSystemTypeVersion"] = _newer_version(record, str(request["FileSystemTypeVersion"]))
    for name, value in changes.items():
        new_lustre[name] = _changed(record, name, value)
    if "MetadataConfiguration" not in changes and (new_lustre.get("MetadataConfiguration") or {}).get("Mode") == (
        "AUTOMATIC"
    ):
        capacity = int({**record, **target}.get("StorageCapacity") or 0)
        iops = max(rules.automatic_metadata_iops(capacity), lustre["MetadataConfiguration"]["Iops"])
        new_lustre["MetadataConfiguration"] = {"Mode": "AUTOMATIC", "Iops": iops}
    record.update(target)
    record["LustreConfiguration"] = new_lustre
    action = {"AdministrativeActionType": "FILE_SYSTEM_UPDATE", "RequestTime": time.time(), "Status": "COMPLETED"}
    record["AdministrativeActions"] = [action]
    return record


def delete(*, store: Store, surroundings: Surroundings, record: Record, at_once: bool = False) -> Record:
    """Delete a file system and its associations, unless a data repository task is under way."""
    running = store.running_tasks_of(record["FileSystemId"])
    if running:
        raise bad_request(TASK_RUNNING + ", ".join(task["TaskId"] for task in running))
    if record["Lifecycle"] == "DELETING":
        return record
    record["Lifecycle"] = "DELETING"

    def gone() -> None:
        surroundings.remove_network_interfaces(record["NetworkInterfaceIds"])
        for association in store.associations_of(record["FileSystemId"]):
            store.associations.pop(association["AssociationId"], None)
        store.file_systems.pop(record["FileSystemId"], None)

    store.later(record, gone, at_once=at_once)
    return record


def _changed(record: Record, name: str, value: Any) -> Any:  # noqa: ANN401 - a member of any JSON type
    lustre = record["LustreConfiguration"]
    match name:
        case "PerUnitStorageThroughput":
            return _new_throughput(record, int(value))
        case "ThroughputCapacity":
            if record["StorageType"] != "INTELLIGENT_TIERING" or int(value) <= int(lustre["ThroughputCapacity"]):
                raise bad_request("ThroughputCapacity can only be increased, on INTELLIGENT_TIERING file systems.")
            return int(value)
        case "MetadataConfiguration":
            return _new_metadata(record, value)
        case "LogConfiguration":
            rules.check_logs(value)
            return value
        case "AutomaticBackupRetentionDays":
            if int(value) and lustre["DeploymentType"] in rules.SCRATCH:
                raise bad_request("Automatic backups are not supported for scratch file systems.")
            return int(value)
        case (
            "DataCompressionType"
            | "WeeklyMaintenanceStartTime"
            | "DailyAutomaticBackupStartTime"
            | "AutoImportPolicy"
            | "RootSquashConfiguration"
            | "DataReadCacheConfiguration"
        ):
            return value
        case _:
            raise bad_request(f"{name} cannot be updated.")


def _grown_capacity(record: Record, capacity: int) -> int:
    lustre = record["LustreConfiguration"]
    if record["StorageType"] == "INTELLIGENT_TIERING" or lustre["DeploymentType"] == "SCRATCH_1":
        raise bad_request("StorageCapacity cannot be updated on this file system.")
    if capacity <= int(record["StorageCapacity"]):
        raise bad_request(
            f"The storage capacity must be greater than the current {record['StorageCapacity']} GiB, got: {capacity}."
        )
    step = rules.capacity_step(
        deployment=lustre["DeploymentType"],
        storage_type=record["StorageType"],
        throughput=lustre.get("PerUnitStorageThroughput"),
        efa=bool(lustre.get("EfaEnabled")),
    )
    rules.check_capacity_step(capacity=capacity, step=step, context="this file system")
    return capacity


def _new_throughput(record: Record, throughput: int) -> int:
    lustre = record["LustreConfiguration"]
    deployment = lustre["DeploymentType"]
    if deployment in rules.SCRATCH or record["StorageType"] != "SSD":
        raise bad_request("PerUnitStorageThroughput can be updated on persistent SSD file systems only.")
    if lustre.get("EfaEnabled"):
        raise bad_request("PerUnitStorageThroughput cannot be updated on EFA-enabled file systems.")
    rules.checked_file_system(
        {
            "FileSystemType": "LUSTRE",
            "FileSystemTypeVersion": record["FileSystemTypeVersion"],
            "StorageType": record["StorageType"],
            "StorageCapacity": record["StorageCapacity"],
            "LustreConfiguration": {"DeploymentType": deployment, "PerUnitStorageThroughput": throughput},
        }
    )
    return throughput


def _new_metadata(record: Record, value: Mapping[str, Any]) -> dict[str, Any]:
    current = record["LustreConfiguration"].get("MetadataConfiguration")
    if not record["_metadata_given"] or current is None:
        raise bad_request(METADATA_NOT_SPECIFIED)
    iops = rules.checked_metadata_iops(value["Iops"]) if value.get("Iops") is not None else int(current["Iops"])
    if iops < int(current["Iops"]):
        raise bad_request(f"Metadata IOPS can only be increased from {current['Iops']}, got: {iops}.")
    return {"Mode": value.get("Mode", current["Mode"]), "Iops": iops}


def _newer_version(record: Record, version: str) -> str:
    current = str(record["FileSystemTypeVersion"])
    if version not in ("2.12", "2.15") or float(version) <= float(current):
        raise bad_request(f"FileSystemTypeVersion can only be updated to a newer version than {current}.")
    return version


def _check_quotas(store: Store, checked: Mapping[str, Any]) -> None:
    deployment = checked["LustreConfiguration"]["DeploymentType"]
    peers = [
        record
        for record in store.file_systems.values()
        if _family(record["LustreConfiguration"]["DeploymentType"]) == _family(deployment)
    ]
    count = store.control.quotas.get(_COUNT_QUOTAS.get(deployment, _SCRATCH_COUNT))
    if count is not None and len(peers) + 1 > count:
        raise FsxError("ServiceLimitExceeded", _over("file systems", count), {"Limit": "FILE_SYSTEM_COUNT"})
    capacity = store.control.quotas.get(_CAPACITY_QUOTAS.get(deployment, _SCRATCH_CAPACITY))
    total = sum(int(peer.get("StorageCapacity", 0)) for peer in peers) + int(checked.get("StorageCapacity", 0))
    if capacity is not None and total > capacity:
        raise FsxError("ServiceLimitExceeded", _over("GiB of storage", capacity), {"Limit": "TOTAL_STORAGE"})
    throughput = store.control.quotas.get("L-0CD18A5D")
    mbps = sum(int(fs["LustreConfiguration"].get("ThroughputCapacity") or 0) for fs in (*peers, checked))
    if throughput is not None and mbps > throughput:
        message = _over("MBps of Intelligent-Tiering throughput", throughput)
        raise FsxError("ServiceLimitExceeded", message, {"Limit": "TOTAL_THROUGHPUT_CAPACITY"})


def _over(what: str, limit: int) -> str:
    return f"The request exceeds the account's limit of {limit} {what} in this Region."


def _family(deployment: str) -> str:
    return "SCRATCH" if deployment in rules.SCRATCH else str(deployment)


def _servers(checked: Mapping[str, Any]) -> int:
    """Return how many servers, and so network interfaces, the file system has (user guide, network addresses)."""
    lustre = checked["LustreConfiguration"]
    metadata_iops = int((lustre.get("MetadataConfiguration") or {}).get("Iops", 0))
    metadata = max(-(-metadata_iops // _IOPS_PER_METADATA_SERVER), 1)
    if checked["StorageType"] == "INTELLIGENT_TIERING":
        return metadata + int(lustre["ThroughputCapacity"]) // 4000
    step = rules.capacity_step(
        deployment=lustre["DeploymentType"],
        storage_type=checked["StorageType"],
        throughput=lustre.get("PerUnitStorageThroughput"),
        efa=bool(lustre.get("EfaEnabled")),
    )
    return metadata + max(-(-int(checked["StorageCapacity"]) // step), 1)


def _mount_name() -> str:
    return "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(8))
