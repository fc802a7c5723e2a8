"""Reads CloudFormation properties, or the members of an API request, which are spelled alike.

Intrinsic functions are left alone: what they stand for is UNKNOWN.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from training_storage.planning.catalog.limits import express_naming
from training_storage.planning.legality.express import DirectoryBucket
from training_storage.planning.legality.finding import UNKNOWN, Flag, Number, Text, Unknown, Words
from training_storage.planning.legality.intrinsics import is_absent, is_intrinsic, plain_text
from training_storage.planning.legality.links import Link
from training_storage.planning.legality.lustre_spec import (
    FileSystem,
    LegacyLink,
    Logging,
    MetadataConfiguration,
    ReadCache,
    RootSquash,
)

if TYPE_CHECKING:
    from training_storage.planning.catalog import Region

_LOG_PLACE = re.compile(r"arn:(?P<partition>[a-z-]+|\$\{[^}]*\}):logs:(?P<region>[a-z0-9-]+|\$\{[^}]*\}):")


def read_file_system(
    properties: Mapping[str, Any], *, region: Region | None = None, linked: bool = False
) -> FileSystem:
    """Return the file system that the properties of AWS::FSx::FileSystem ask for.

    Parameters
    ----------
    properties
        As CloudFormation or CreateFileSystem spells them.
    region
        Where it will stand; None if that is not known.
    linked
        Whether an association links it.
    """
    block = _block(properties, "LustreConfiguration")
    if isinstance(block, Unknown):
        return FileSystem(
            deployment_type=UNKNOWN,
            storage_type=_kind(properties, "StorageType", "SSD"),
            storage_capacity_gib=number(properties, "StorageCapacity"),
            per_unit_storage_throughput=UNKNOWN,
            throughput_capacity=UNKNOWN,
            file_system_type_version=text(properties, "FileSystemTypeVersion"),
            metadata=UNKNOWN,
            efa_enabled=UNKNOWN,
            drive_cache_type=UNKNOWN,
            read_cache=UNKNOWN,
            linked=linked,
            network_type=text(properties, "NetworkType"),
            subnets=_count(properties, "SubnetIds"),
            tags=_count(properties, "Tags"),
            region=region,
        )
    lustre = block or {}
    # A backup brings along what is left out here.
    restored = not is_absent(properties.get("BackupId"))
    system = FileSystem(
        deployment_type=_kind(lustre, "DeploymentType", "SCRATCH_1"),
        storage_type=_kind(properties, "StorageType", "SSD"),
        storage_capacity_gib=number(properties, "StorageCapacity"),
        per_unit_storage_throughput=number(lustre, "PerUnitStorageThroughput"),
        throughput_capacity=number(lustre, "ThroughputCapacity"),
        file_system_type_version=text(properties, "FileSystemTypeVersion"),
        metadata=_metadata(lustre),
        efa_enabled=flag(lustre, "EfaEnabled"),
        drive_cache_type=text(lustre, "DriveCacheType"),
        read_cache=_read_cache(lustre),
        legacy_link=LegacyLink(
            import_path=text(lustre, "ImportPath"),
            export_path=text(lustre, "ExportPath"),
            imported_file_chunk_size_mib=number(lustre, "ImportedFileChunkSize"),
            auto_import_policy=text(lustre, "AutoImportPolicy"),
        ),
        linked=linked,
        backup_retention_days=number(lustre, "AutomaticBackupRetentionDays"),
        copy_tags_to_backups=flag(lustre, "CopyTagsToBackups"),
        encryption_key=text(properties, "KmsKeyId"),
        logging=_logging(lustre),
        data_compression=text(lustre, "DataCompressionType"),
        root_squash=_root_squash(lustre),
        network_type=text(properties, "NetworkType"),
        weekly_maintenance_start_time=text(lustre, "WeeklyMaintenanceStartTime"),
        subnets=_count(properties, "SubnetIds"),
        tags=_count(properties, "Tags"),
        region=region,
        from_backup=restored,
    )
    return _of_backup(system, properties, lustre) if restored else system


def _of_backup(system: FileSystem, properties: Mapping[str, Any], lustre: Mapping[str, Any]) -> FileSystem:
    """Return `system` with UNKNOWN for what its backup decides."""
    brought: dict[str, Any] = {
        "storage_capacity_gib": (properties, "StorageCapacity"),
        "storage_type": (properties, "StorageType"),
        "file_system_type_version": (properties, "FileSystemTypeVersion"),
        "deployment_type": (lustre, "DeploymentType"),
        "per_unit_storage_throughput": (lustre, "PerUnitStorageThroughput"),
        "throughput_capacity": (lustre, "ThroughputCapacity"),
        "metadata": (lustre, "MetadataConfiguration"),
        "drive_cache_type": (lustre, "DriveCacheType"),
        "read_cache": (lustre, "DataReadCacheConfiguration"),
    }
    missing: dict[str, Any] = {
        field: UNKNOWN for field, (values, name) in brought.items() if is_absent(values.get(name))
    }
    return replace(system, **missing)


def read_link(
    properties: Mapping[str, Any],
    *,
    file_system: FileSystem | None = None,
    file_system_region: str | None = None,
    bucket_region: str | None = None,
) -> Link:
    """Return the link that the properties of AWS::FSx::DataRepositoryAssociation ask for."""
    policies = _block(properties, "S3")
    imports: tuple[object, ...] | Unknown = UNKNOWN
    exports: tuple[object, ...] | Unknown = UNKNOWN
    if not isinstance(policies, Unknown):
        imports = _events(policies or {}, "AutoImportPolicy")
        exports = _events(policies or {}, "AutoExportPolicy")
    return Link(
        file_system_path=_path(properties, "FileSystemPath"),
        data_repository_path=_path(properties, "DataRepositoryPath"),
        chunk_size_mib=number(properties, "ImportedFileChunkSize"),
        import_events=imports,
        export_events=exports,
        file_system=file_system,
        file_system_region=file_system_region,
        bucket_region=bucket_region,
    )


def read_directory_bucket(
    properties: Mapping[str, Any], *, region: Region | None = None, lifecycle_granted: bool | None = None
) -> DirectoryBucket:
    """Return the bucket that the properties of AWS::S3Express::DirectoryBucket ask for."""
    naming = express_naming()
    encryption = _first(_block(properties, "BucketEncryption"), "ServerSideEncryptionConfiguration")
    default = _block(encryption, "ServerSideEncryptionByDefault") if isinstance(encryption, Mapping) else None
    by_default = default if isinstance(default, Mapping) else {}
    lifecycle = _block(properties, "LifecycleConfiguration")
    rules = lifecycle.get("Rules") if isinstance(lifecycle, Mapping) else None
    enabled = [
        rule
        for rule in (rules if isinstance(rules, list) else [])
        if isinstance(rule, Mapping) and not is_intrinsic(rule) and rule.get("Status") == "Enabled"
    ]
    days = [number(rule, "ExpirationInDays") for rule in enabled if "ExpirationInDays" in rule]
    return DirectoryBucket(
        name=_path(properties, "BucketName"),
        zone_id=text(properties, "LocationName"),
        redundancy=text(properties, "DataRedundancy"),
        algorithm=text(by_default, "SSEAlgorithm"),
        kms_key=_path(by_default, "KMSMasterKeyID"),
        bucket_key=flag(encryption, "BucketKeyEnabled") if isinstance(encryption, Mapping) else None,
        expires=bool(enabled),
        expiration_days=next((day for day in days if not isinstance(day, int) or day < 1), days[0] if days else None),
        lifecycle_granted=lifecycle_granted,
        extra_properties=tuple(name for name in naming.missing_properties if name in properties),
        extra_lifecycle=tuple(name for name in naming.missing_in_lifecycle if any(name in rule for rule in enabled)),
        region=region,
    )


def text(values: Mapping[str, Any], name: str) -> Text:
    """Return a text, None where it is left out, or UNKNOWN."""
    value = values.get(name)
    if is_absent(value):
        return None
    if is_intrinsic(value):
        return UNKNOWN
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, (int, float)) else UNKNOWN


def number(values: Mapping[str, Any], name: str) -> Number:
    """Return a number; CloudFormation takes ``"1200"`` for 1200. Text that is no number is returned as it is."""
    value = values.get(name)
    if is_absent(value):
        return None
    if is_intrinsic(value):
        return UNKNOWN
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, (int, float, str)) else UNKNOWN


def flag(values: Mapping[str, Any], name: str) -> Flag:
    """Return a switch; CloudFormation takes ``"true"`` for true."""
    value = values.get(name)
    if is_absent(value):
        return None
    if is_intrinsic(value):
        return UNKNOWN
    if isinstance(value, bool):
        return value
    if not isinstance(value, (str, int, float)):
        return UNKNOWN
    return {"true": True, "false": False}.get(str(value).lower(), str(value))


def _kind(values: Mapping[str, Any], name: str, default: str) -> str | Unknown:
    value = text(values, name)
    return default if value is None else value


def _path(values: Mapping[str, Any], name: str) -> Text:
    """Return a text whose unknown parts stand in it as ``${…}``; UNKNOWN if nothing of it is known."""
    value = values.get(name)
    return None if is_absent(value) else plain_text(value)


def _block(values: Mapping[str, Any], name: str) -> Mapping[str, Any] | Unknown | None:
    value = values.get(name)
    if is_absent(value):
        return None
    return value if isinstance(value, Mapping) and not is_intrinsic(value) else UNKNOWN


def _first(values: Mapping[str, Any] | Unknown | None, name: str) -> object:
    items = values.get(name) if isinstance(values, Mapping) else None
    return items[0] if isinstance(items, list) and items and not is_intrinsic(items[0]) else None


def _count(values: Mapping[str, Any], name: str) -> int | Unknown:
    """Return how many items a list has; a left-out list is not counted, because it may be a default's business."""
    value = values.get(name)
    if not isinstance(value, Sequence) or isinstance(value, str) or any(map(_may_be_many, value)):
        return UNKNOWN
    return len(value)


def _may_be_many(item: object) -> bool:
    """Whether an item may stand for none or for several."""
    return is_intrinsic(item) and isinstance(item, Mapping) and next(iter(item)) in ("Fn::If", "Fn::ForEach")


def _metadata(lustre: Mapping[str, Any]) -> MetadataConfiguration | Unknown | None:
    block = _block(lustre, "MetadataConfiguration")
    if block is None or isinstance(block, Unknown):
        return block
    return MetadataConfiguration(mode=text(block, "Mode"), iops=number(block, "Iops"))


def _read_cache(lustre: Mapping[str, Any]) -> ReadCache | Unknown | None:
    block = _block(lustre, "DataReadCacheConfiguration")
    if block is None or isinstance(block, Unknown):
        return block
    return ReadCache(sizing_mode=text(block, "SizingMode"), size_gib=number(block, "SizeGiB"))


def _root_squash(lustre: Mapping[str, Any]) -> RootSquash | Unknown | None:
    block = _block(lustre, "RootSquashConfiguration")
    if block is None or isinstance(block, Unknown):
        return block
    nids = block.get("NoSquashNids")
    return RootSquash(
        root_squash=text(block, "RootSquash"),
        no_squash_nids=tuple(nid for nid in nids if isinstance(nid, str)) if isinstance(nids, list) else (),
    )


def _logging(lustre: Mapping[str, Any]) -> Logging | Unknown | None:
    block = _block(lustre, "LogConfiguration")
    if block is None or isinstance(block, Unknown):
        return block
    destination = _path(block, "Destination")
    group: Text = destination
    region: Text = None
    partition: Text = None
    if isinstance(destination, str):
        before, mark, name = destination.partition(":log-group:")
        group = name.removesuffix(":*") if mark else destination
        if group.startswith("${"):
            group = UNKNOWN
        match = _LOG_PLACE.match(f"{before}:")
        if mark and match is not None:
            region, partition = (None if part.startswith("$") else part for part in match.group("region", "partition"))
    return Logging(level=text(block, "Level"), group=group, region=region, partition=partition)


def _events(policies: Mapping[str, Any], name: str) -> tuple[object, ...] | Unknown:
    block = _block(policies, name)
    if block is None:
        return ()
    events = UNKNOWN if isinstance(block, Unknown) else block.get("Events")
    if isinstance(events, str):
        return (Words(f"the text {events!r} instead of a list"),)
    if not isinstance(events, list):
        return UNKNOWN
    return tuple(event if isinstance(event, (str, int, float)) else UNKNOWN for event in events)
