"""What FSx accepts when a Lustre file system is created, and its defaults.

What is legal is said by `training_storage.planning.legality`, the engine that planner and constructs ask as well. Here
its findings become errors of the service: in AWS's own words where these are known, from trials of the service in
October 2026 or the service model, otherwise in the words of the rule behind the name of the property.
"""

from collections.abc import Callable, Mapping
from typing import Any

from training_storage.planning import catalog, legality
from training_storage.planning.catalog.limits import lustre_limits
from training_storage.planning.legality.lustre_capacity import capacity_grid, per_unit_throughputs
from training_storage.planning.legality.lustre_spec import PERSISTENT, SCRATCH, TIERING
from training_storage.testing.local_aws.fsx.errors import FsxError, bad_request

__all__ = [
    "PERSISTENT",
    "SCRATCH",
    "automatic_metadata_iops",
    "capacity_step",
    "check_capacity_step",
    "check_logs",
    "checked_file_system",
    "checked_metadata_iops",
]

_LINK_PROPERTIES = ("ImportPath", "ExportPath", "ImportedFileChunkSize", "AutoImportPolicy")

_EFA = "EFA is only supported for PERSISTENT_2 filesystems with metadata configuration"
_VERSION = "A FileSystemTypeVersion of '2.15' is required to create a file system with metadata configuration"
_IMPORT_PATH = "Linking a Persistent 2 file system to an S3 bucket using the LustreConfiguration is not supported"


def checked_file_system(request: Mapping[str, Any], *, region: str | None = None) -> dict[str, Any]:
    """Return the file system that a creation request asks for, its defaults filled in.

    Parameters
    ----------
    request
        The members of CreateFileSystem, spelled as the API spells them. CloudFormation's properties have the same
        names.
    region
        Where it is made; without it the rules of Regions are left out.

    Raises
    ------
    FsxError
        ``BadRequest`` and its relatives, in the service's words.
    """
    if request.get("FileSystemType") != "LUSTRE":
        raise bad_request("Only FileSystemType LUSTRE is served here.")
    # The subnets are the network's business, which has words of its own for them.
    members = {name: value for name, value in request.items() if name != "SubnetIds"}
    system = legality.read_file_system(members, region=catalog.regions().get(region) if region else None)
    for finding in legality.check_file_system(system):
        raise _error(finding, system)
    lustre: dict[str, Any] = {"DeploymentType": "SCRATCH_1", **(request.get("LustreConfiguration") or {})}
    checked: dict[str, Any] = {
        "FileSystemType": "LUSTRE",
        "FileSystemTypeVersion": system.version,
        "StorageType": system.storage_type,
        "LustreConfiguration": _with_defaults(lustre, request, str(system.deployment_type)),
    }
    if request.get("StorageCapacity") is not None:
        checked["StorageCapacity"] = int(request["StorageCapacity"])
    return checked


def automatic_metadata_iops(capacity_gib: int) -> int:
    """Return the metadata IOPS that mode AUTOMATIC gives: an SSD file system by its capacity in GiB, others the least.

    Source: FSx for Lustre user guide, performance page.
    """
    least = catalog.lustre.deployment_types()["PERSISTENT_2"].capacity_minimum_gib
    return catalog.lustre.automatic_metadata_iops(max(capacity_gib, least))


def check_capacity_step(*, capacity: int, step: int, context: str) -> None:
    """Refuse a capacity off the grid (both in GiB)."""
    if capacity <= 0 or capacity % step:
        message = f"Storage capacity must be a multiple of {step} GiB for {context}, got: {capacity}."
        raise bad_request(message)


def capacity_step(*, deployment: str, storage_type: str, throughput: int | None, efa: bool) -> int:
    """Return the step of the capacity grid in GiB."""
    grid = capacity_grid(deployment_type=deployment, storage_type=storage_type, per_unit=throughput, efa=efa)
    if grid is None:
        raise bad_request(f"Invalid PerUnitStorageThroughput: {throughput}.")
    return grid.step


def checked_metadata_iops(iops: object) -> int:
    """Refuse metadata IOPS that FSx does not offer."""
    value = int(str(iops))
    metadata = legality.MetadataConfiguration(mode="USER_PROVISIONED", iops=value)
    _check_part(legality.FileSystem(**_NOTHING_KNOWN, metadata=metadata))
    return value


def check_logs(logs: Mapping[str, Any] | None) -> None:
    """Refuse a log configuration that FSx does not accept."""
    if logs is not None:
        given = legality.read_file_system({"LustreConfiguration": {"LogConfiguration": logs}})
        _check_part(legality.FileSystem(**_NOTHING_KNOWN, logging=given.logging))


_NOTHING_KNOWN: dict[str, Any] = {"deployment_type": legality.UNKNOWN, "storage_type": legality.UNKNOWN}


def _check_part(system: legality.FileSystem) -> None:
    for finding in legality.check_file_system(system):
        raise _error(finding, system)


def _error(finding: legality.Finding, system: legality.FileSystem) -> FsxError:
    """Return a finding as the service says it."""
    words = _WORDS.get(finding.rule)
    if words is not None:
        return words(system)
    return bad_request(f"Invalid {finding.location or finding.what}: {finding.message}.")


def _bad_throughput(system: legality.FileSystem) -> FsxError:
    deployment, storage, got = str(system.deployment_type), str(system.storage_type), system.per_unit_storage_throughput
    tiers = per_unit_throughputs(deployment, storage)
    if not tiers:
        kind = storage if storage == TIERING else deployment
        return bad_request(f"PerUnitStorageThroughput is not supported for {kind} file systems.")
    return FsxError(
        "InvalidPerUnitStorageThroughput",
        f"Invalid PerUnitStorageThroughput: {got}. Valid values for {deployment} file systems with {storage} storage "
        f"are {', '.join(map(str, tiers))}.",
    )


def _bad_capacity(system: legality.FileSystem) -> FsxError:
    if system.storage_capacity_gib is None:
        return bad_request("StorageCapacity is required.")
    findings = [finding for finding in legality.check_file_system(system) if finding.rule == "lustre-capacity"]
    return bad_request(f"Invalid StorageCapacity: {findings[0].message}.")


def _bad_metadata_iops(system: legality.FileSystem) -> FsxError:
    metadata = system.metadata
    mode, iops = (
        (metadata.mode, metadata.iops) if isinstance(metadata, legality.MetadataConfiguration) else (None, None)
    )
    if mode == "AUTOMATIC":
        return bad_request("Metadata IOPS cannot be specified when the metadata configuration mode is AUTOMATIC.")
    if iops is None:
        return bad_request("Metadata IOPS must be specified when the metadata configuration mode is USER_PROVISIONED.")
    allowed = ", ".join(str(value) for value in catalog.lustre.metadata_iops_steps())
    return bad_request(f"Invalid value for Metadata IOPS: {iops}. Valid values are {allowed}.")


def _bad_metadata_type(system: legality.FileSystem) -> FsxError:
    return bad_request(f"Metadata configuration is not supported for {system.deployment_type} file systems.")


def _bad_version(system: legality.FileSystem) -> FsxError:
    got, allowed = system.file_system_type_version, ", ".join(lustre_limits().versions)
    if got in lustre_limits().versions:
        return bad_request(f"FileSystemTypeVersion '{got}' is not supported for {system.deployment_type} file systems.")
    return bad_request(f"Invalid FileSystemTypeVersion: {got}. Valid values are {allowed}.")


def _version_too_old(system: legality.FileSystem) -> FsxError:
    if system.tiering and system.metadata is None:
        return bad_request("StorageType INTELLIGENT_TIERING requires DeploymentType PERSISTENT_2 and Lustre 2.15.")
    return bad_request(_VERSION)


_WORDS: dict[str, Callable[[legality.FileSystem], FsxError]] = {
    "lustre-throughput": _bad_throughput,
    "lustre-capacity": _bad_capacity,
    "lustre-version": _bad_version,
    "lustre-version-features": _version_too_old,
    "lustre-metadata-type": _bad_metadata_type,
    "lustre-metadata-iops": _bad_metadata_iops,
    "lustre-efa-type": lambda _: bad_request(_EFA),
    "lustre-efa-metadata": lambda _: bad_request(_EFA),
    "lustre-import-path": lambda _: bad_request(_IMPORT_PATH),
}


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
