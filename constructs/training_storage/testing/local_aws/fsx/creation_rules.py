"""What FSx accepts when a Lustre file system is created, and its defaults.

Sources: the botocore service model of FSx (CreateFileSystemRequest, CreateFileSystemLustreConfiguration), the FSx for
Lustre user guide, and error texts seen in trials of the service in October 2026.
"""

import re
from collections.abc import Mapping
from typing import Any

from training_storage.testing.local_aws.fsx.errors import FsxError, bad_request

SCRATCH = ("SCRATCH_1", "SCRATCH_2")
PERSISTENT = ("PERSISTENT_1", "PERSISTENT_2")

_VERSIONS = ("2.10", "2.12", "2.15")
_SSD_THROUGHPUTS = {"PERSISTENT_1": (50, 100, 200), "PERSISTENT_2": (125, 250, 500, 1000)}
_HDD_STEPS = {12: 6000, 40: 1800}
EFA_STEPS = {125: 38400, 250: 19200, 500: 9600, 1000: 4800}
METADATA_IOPS = (1500, 3000, 6000, *range(12000, 192001, 12000))
_LINK_PROPERTIES = ("ImportPath", "ExportPath", "ImportedFileChunkSize", "AutoImportPolicy")
_LOG_LEVELS = ("DISABLED", "WARN_ONLY", "ERROR_ONLY", "WARN_ERROR")
_MAX_BACKUP_DAYS = 90
_MAX_TAGS = 50
_IT_THROUGHPUT_STEP = 4000
_IT_THROUGHPUT_MAX = 2_000_000


def checked_file_system(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the file system that a creation request asks for, its defaults filled in.

    Parameters
    ----------
    request
        The members of CreateFileSystem, spelled as the API spells them. CloudFormation's properties have the same
        names.

    Raises
    ------
    FsxError
        ``BadRequest`` and its relatives, in the service's words.
    """
    if request.get("FileSystemType") != "LUSTRE":
        raise bad_request("Only FileSystemType LUSTRE is served here.")
    if len(request.get("Tags") or []) > _MAX_TAGS:
        raise bad_request(f"A resource cannot have more than {_MAX_TAGS} tags.")
    lustre: dict[str, Any] = {"DeploymentType": "SCRATCH_1", **(request.get("LustreConfiguration") or {})}
    storage_type = str(request.get("StorageType") or "SSD")
    deployment = str(lustre["DeploymentType"])
    if deployment not in (*SCRATCH, *PERSISTENT):
        raise bad_request(f"Invalid DeploymentType: {deployment}.")
    metadata = lustre.get("MetadataConfiguration")
    version = _version(request, deployment)
    _check_links(lustre, deployment)
    _check_metadata(metadata, deployment, version, storage_type)
    _check_efa(lustre, deployment, metadata)
    if storage_type == "INTELLIGENT_TIERING":
        _check_intelligent_tiering(request, lustre, deployment, version)
    else:
        _check_throughput(lustre, deployment, storage_type)
        _check_capacity(request, lustre, deployment, storage_type)
    _check_options(request, lustre, deployment)
    checked: dict[str, Any] = {
        "FileSystemType": "LUSTRE",
        "FileSystemTypeVersion": version,
        "StorageType": storage_type,
        "LustreConfiguration": _with_defaults(lustre, request, deployment),
    }
    if request.get("StorageCapacity") is not None:
        checked["StorageCapacity"] = int(request["StorageCapacity"])
    return checked


def automatic_metadata_iops(capacity_gib: int) -> int:
    """Return the metadata IOPS that mode AUTOMATIC gives an SSD file system, by its capacity in GiB.

    Source: FSx for Lustre user guide, performance page.
    """
    for limit, iops in ((1200, 1500), (2400, 3000), (9600, 6000), (45600, 12000)):
        if capacity_gib <= limit:
            return iops
    return int(min(12000 * (capacity_gib // 24000), METADATA_IOPS[-1]))


def check_capacity_step(*, capacity: int, step: int, context: str) -> None:
    """Refuse a capacity off the grid (both in GiB)."""
    if capacity <= 0 or capacity % step:
        message = f"Storage capacity must be a multiple of {step} GiB for {context}, got: {capacity}."
        raise bad_request(message)


def capacity_step(*, deployment: str, storage_type: str, throughput: int | None, efa: bool) -> int:
    """Return the step of the capacity grid in GiB."""
    if storage_type == "HDD":
        return _HDD_STEPS[int(throughput or 0)]
    if efa:
        return EFA_STEPS[int(throughput or 0)]
    return 3600 if deployment == "SCRATCH_1" else 2400


def checked_metadata_iops(iops: object) -> int:
    """Refuse metadata IOPS that FSx does not offer."""
    if int(str(iops)) not in METADATA_IOPS:
        allowed = ", ".join(str(value) for value in METADATA_IOPS)
        raise bad_request(f"Invalid value for Metadata IOPS: {iops}. Valid values are {allowed}.")
    return int(str(iops))


def _version(request: Mapping[str, Any], deployment: str) -> str:
    default = "2.15" if deployment == "PERSISTENT_2" else "2.10"
    version = str(request.get("FileSystemTypeVersion") or default)
    if version not in _VERSIONS:
        raise bad_request(f"Invalid FileSystemTypeVersion: {version}. Valid values are {', '.join(_VERSIONS)}.")
    if deployment == "PERSISTENT_2" and version == "2.10":
        raise bad_request("FileSystemTypeVersion '2.10' is not supported for PERSISTENT_2 file systems.")
    return version


def _check_links(lustre: Mapping[str, Any], deployment: str) -> None:
    given = [name for name in _LINK_PROPERTIES if lustre.get(name) not in (None, "NONE")]
    if given and deployment == "PERSISTENT_2":
        raise bad_request(
            "Linking a Persistent 2 file system to an S3 bucket using the LustreConfiguration is not supported"
        )
    if "ExportPath" in given and "ImportPath" not in given:
        raise bad_request("ExportPath requires an ImportPath.")


def _check_metadata(metadata: Mapping[str, Any] | None, deployment: str, version: str, storage_type: str) -> None:
    if metadata is None:
        return
    if deployment != "PERSISTENT_2":
        raise bad_request(f"Metadata configuration is not supported for {deployment} file systems.")
    if version != "2.15":
        raise bad_request(
            "A FileSystemTypeVersion of '2.15' is required to create a file system with metadata configuration"
        )
    mode = metadata.get("Mode")
    if mode not in ("AUTOMATIC", "USER_PROVISIONED"):
        raise bad_request("Metadata configuration requires a Mode of AUTOMATIC or USER_PROVISIONED.")
    if mode == "AUTOMATIC" and metadata.get("Iops") is not None:
        raise bad_request("Metadata IOPS cannot be specified when the metadata configuration mode is AUTOMATIC.")
    if mode == "USER_PROVISIONED" or storage_type == "INTELLIGENT_TIERING":
        if mode == "USER_PROVISIONED" and metadata.get("Iops") is None:
            raise bad_request(
                "Metadata IOPS must be specified when the metadata configuration mode is USER_PROVISIONED."
            )
        if metadata.get("Iops") is not None:
            checked_metadata_iops(metadata["Iops"])


def _check_efa(lustre: Mapping[str, Any], deployment: str, metadata: object) -> None:
    if _true(lustre.get("EfaEnabled")) and (deployment != "PERSISTENT_2" or metadata is None):
        raise bad_request("EFA is only supported for PERSISTENT_2 filesystems with metadata configuration")


def _check_intelligent_tiering(
    request: Mapping[str, Any], lustre: Mapping[str, Any], deployment: str, version: str
) -> None:
    if deployment != "PERSISTENT_2" or version != "2.15":
        raise bad_request("StorageType INTELLIGENT_TIERING requires DeploymentType PERSISTENT_2 and Lustre 2.15.")
    if request.get("StorageCapacity") is not None:
        raise bad_request("StorageCapacity must not be specified for INTELLIGENT_TIERING file systems.")
    if lustre.get("PerUnitStorageThroughput") is not None:
        raise bad_request("PerUnitStorageThroughput must not be specified for INTELLIGENT_TIERING file systems.")
    throughput = int(lustre.get("ThroughputCapacity") or 0)
    if throughput <= 0 or throughput % _IT_THROUGHPUT_STEP or throughput > _IT_THROUGHPUT_MAX:
        raise bad_request(
            f"ThroughputCapacity must be a multiple of {_IT_THROUGHPUT_STEP} MBps up to {_IT_THROUGHPUT_MAX} "
            f"for INTELLIGENT_TIERING file systems, got: {lustre.get('ThroughputCapacity')}."
        )
    if lustre.get("MetadataConfiguration") is None:
        raise bad_request("MetadataConfiguration is required for INTELLIGENT_TIERING file systems.")
    cache = lustre.get("DataReadCacheConfiguration")
    if cache is None:
        raise bad_request("DataReadCacheConfiguration is required for INTELLIGENT_TIERING file systems.")
    _check_read_cache(cache, throughput)


def _check_read_cache(cache: Mapping[str, Any], throughput: int) -> None:
    mode = cache.get("SizingMode")
    if mode not in ("NO_CACHE", "USER_PROVISIONED", "PROPORTIONAL_TO_THROUGHPUT_CAPACITY"):
        raise bad_request(f"Invalid DataReadCacheConfiguration SizingMode: {mode}.")
    size = cache.get("SizeGiB")
    if (mode == "USER_PROVISIONED") != (size is not None):
        raise bad_request("SizeGiB is required with SizingMode USER_PROVISIONED and not permitted otherwise.")
    if size is not None:
        thousands = throughput // 1000
        if not 8 * thousands <= int(size) <= 32768 * thousands:
            raise bad_request(
                f"SizeGiB must be between {8 * thousands} and {32768 * thousands} for a throughput capacity of "
                f"{throughput} MBps, got: {size}."
            )


def _check_throughput(lustre: Mapping[str, Any], deployment: str, storage_type: str) -> None:
    throughput = lustre.get("PerUnitStorageThroughput")
    if lustre.get("ThroughputCapacity") is not None:
        raise bad_request("ThroughputCapacity is only supported for INTELLIGENT_TIERING file systems.")
    if deployment in SCRATCH:
        if throughput is not None:
            raise bad_request(f"PerUnitStorageThroughput is not supported for {deployment} file systems.")
        if storage_type != "SSD":
            raise bad_request(f"StorageType {storage_type} is not supported for {deployment} file systems.")
        return
    if storage_type == "HDD" and deployment != "PERSISTENT_1":
        raise bad_request(f"StorageType HDD is not supported for {deployment} file systems.")
    allowed = tuple(_HDD_STEPS) if storage_type == "HDD" else _SSD_THROUGHPUTS[deployment]
    if throughput is None or int(throughput) not in allowed:
        raise FsxError(
            "InvalidPerUnitStorageThroughput",
            f"Invalid PerUnitStorageThroughput: {throughput}. Valid values for {deployment} file systems with "
            f"{storage_type} storage are {', '.join(str(value) for value in allowed)}.",
        )
    if storage_type == "HDD" and lustre.get("DriveCacheType") not in ("NONE", "READ"):
        raise bad_request("DriveCacheType of NONE or READ is required for HDD file systems.")


def _check_capacity(request: Mapping[str, Any], lustre: Mapping[str, Any], deployment: str, storage_type: str) -> None:
    if request.get("StorageCapacity") is None:
        raise bad_request("StorageCapacity is required.")
    capacity = int(request["StorageCapacity"])
    throughput = int(lustre.get("PerUnitStorageThroughput") or 0)
    efa = _true(lustre.get("EfaEnabled"))
    step = capacity_step(deployment=deployment, storage_type=storage_type, throughput=throughput, efa=efa)
    if storage_type == "HDD":
        return check_capacity_step(capacity=capacity, step=step, context=f"HDD with {throughput} MBps per TiB")
    if efa:
        context = f"EFA-enabled file systems with {throughput} MBps per TiB"
        return check_capacity_step(capacity=capacity, step=step, context=context)
    small = (1200, 2400) if deployment == "SCRATCH_1" else (1200,)
    if capacity not in small:
        names = " or ".join(str(value) for value in small)
        check_capacity_step(capacity=capacity, step=step, context=f"{deployment} file systems, or {names} GiB")
    return None


def _check_options(request: Mapping[str, Any], lustre: Mapping[str, Any], deployment: str) -> None:
    if request.get("KmsKeyId") and deployment in SCRATCH:
        raise bad_request(f"KmsKeyId is not supported for {deployment} file systems.")
    days = int(lustre.get("AutomaticBackupRetentionDays") or 0)
    if not 0 <= days <= _MAX_BACKUP_DAYS:
        raise bad_request(f"AutomaticBackupRetentionDays must be between 0 and {_MAX_BACKUP_DAYS}, got: {days}.")
    linked = any(lustre.get(name) is not None for name in _LINK_PROPERTIES)
    if days and (deployment in SCRATCH or linked):
        raise bad_request("Automatic backups are supported on persistent file systems without a linked S3 bucket only.")
    if lustre.get("DataCompressionType") not in (None, "NONE", "LZ4"):
        raise bad_request(f"Invalid DataCompressionType: {lustre['DataCompressionType']}.")
    check_logs(lustre.get("LogConfiguration"))


def check_logs(logs: Mapping[str, Any] | None) -> None:
    """Refuse a log configuration that FSx does not accept."""
    if logs is None:
        return
    if logs.get("Level") not in _LOG_LEVELS:
        raise bad_request(f"Invalid LogConfiguration Level: {logs.get('Level')}.")
    destination = logs.get("Destination")
    if destination is None:
        return
    if logs["Level"] == "DISABLED":
        raise bad_request("A log Destination is not permitted when the Level is DISABLED.")
    if re.search(r":log-group:/aws/fsx", str(destination)) is None:
        raise bad_request("The log Destination must be a log group whose name begins with the /aws/fsx prefix.")


def _with_defaults(lustre: Mapping[str, Any], request: Mapping[str, Any], deployment: str) -> dict[str, Any]:
    settled = {
        "DataCompressionType": "NONE",
        "WeeklyMaintenanceStartTime": "1:05:00",
        "LogConfiguration": {"Level": "DISABLED"},
        **lustre,
    }
    if deployment in PERSISTENT:
        settled.setdefault("AutomaticBackupRetentionDays", 0)
        settled.setdefault("CopyTagsToBackups", False)
    if deployment == "PERSISTENT_2":
        settled["EfaEnabled"] = _true(lustre.get("EfaEnabled"))
    for name in ("PerUnitStorageThroughput", "ThroughputCapacity", "AutomaticBackupRetentionDays"):
        if settled.get(name) is not None:
            settled[name] = int(settled[name])
    metadata = settled.get("MetadataConfiguration")
    if metadata is not None:
        capacity = int(request.get("StorageCapacity") or 0)
        iops = int(metadata["Iops"]) if metadata.get("Iops") else automatic_metadata_iops(capacity)
        settled["MetadataConfiguration"] = {"Mode": metadata["Mode"], "Iops": iops}
    paths = {name: settled.pop(name) for name in _LINK_PROPERTIES if name in settled}
    if paths.get("ImportPath"):
        settled["DataRepositoryConfiguration"] = {"Lifecycle": "AVAILABLE", **paths}
    return settled


def _true(value: object) -> bool:
    return value is True or str(value).lower() == "true"
