"""Rules: subnets, drive cache, legacy links, backups, key, logs, compression, root squash, tags."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from training_storage.planning import catalog
from training_storage.planning.catalog.limits import lustre_limits
from training_storage.planning.legality.finding import Problem, Unknown, Words, is_whole, listed, rule
from training_storage.planning.legality.lustre_spec import SCRATCH, FileSystem, Logging, RootSquash

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONFIGURATION = "FSx API, CreateFileSystemLustreConfiguration"
_MAINTENANCE = re.compile(r"[1-7]:([01]\d|2[0-3]):[0-5]\d")
_IMPORT_PATH = re.compile(r"s3://(?P<bucket>[a-z0-9.-]+)(/.*)?", re.DOTALL)


@rule("lustre-subnets", source="FSx API, CreateFileSystemRequest.SubnetIds")
def subnets(system: FileSystem) -> Iterator[Problem]:
    """Require that a Lustre file system stands in exactly one subnet."""
    if not isinstance(system.subnets, Unknown) and system.subnets != 1:
        yield Problem(
            what="subnet_ids",
            allowed="name exactly one subnet",
            got=Words(f"{system.subnets} subnets"),
            remedy="choose the one in the clients' zone",
            location="SubnetIds",
        )


@rule("lustre-drive-cache", source=f"{_CONFIGURATION}.DriveCacheType")
def drive_cache(system: FileSystem) -> Iterator[Problem]:
    """Require that HDD needs a drive cache type, NONE or READ; SSD takes none."""
    got, storage, allowed = system.drive_cache_type, system.storage_type, lustre_limits().drive_caches
    if isinstance(got, Unknown) or isinstance(storage, Unknown):
        return
    location = "LustreConfiguration.DriveCacheType"
    if storage == "HDD" and got not in allowed:
        yield Problem(
            what="drive_cache_type",
            allowed=f"be one of {listed(allowed)} on HDD",
            got=got,
            remedy="READ adds an SSD cache of 20 % of the capacity",
            location=location,
        )
    elif storage != "HDD" and got is not None:
        yield Problem(
            what="drive_cache_type",
            allowed=f"be left out with {storage}",
            got=got,
            remedy="it belongs to HDD",
            location=location,
        )


@rule("lustre-import-path", source=f"{_CONFIGURATION}.ImportPath; service error text (2026-10)")
def import_path(system: FileSystem) -> Iterator[Problem]:
    """Require that PERSISTENT_2 takes no import or export path."""
    if system.deployment_type == "PERSISTENT_2" and system.legacy_link.given:
        yield Problem(
            what="import_path",
            allowed="be left out for PERSISTENT_2, export path and import policy too",
            got=system.legacy_link.import_path or Words("a link in the file system's own properties"),
            remedy="link with a data repository association",
            location="LustreConfiguration.ImportPath",
        )


@rule("lustre-import-path-form", source=f"{_CONFIGURATION}.ImportPath, ExportPath, ImportedFileChunkSize")
def import_path_form(system: FileSystem) -> Iterator[Problem]:
    """Require that an import path is s3://bucket/prefix; export path, chunk size and import policy need one."""
    link = system.legacy_link
    path = link.import_path
    if isinstance(path, Unknown):
        return
    if path is not None and not _IMPORT_PATH.fullmatch(path):
        yield Problem(
            what="import_path",
            allowed="have the form s3://bucket/prefix",
            got=path,
            remedy="write s3:// before the bucket, whose name has lowercase letters, digits, dots and hyphens",
            location="LustreConfiguration.ImportPath",
        )
    others = [("export_path", link.export_path), ("imported_file_chunk_size_mib", link.imported_file_chunk_size_mib)]
    if link.auto_import_policy != "NONE":
        others.append(("auto_import_policy", link.auto_import_policy))
    for name, value in others:
        if path is None and value is not None:
            yield Problem(
                what=name,
                allowed="have an import_path beside it",
                got=Words("a value only known at deployment") if isinstance(value, Unknown) else value,
                remedy="link with a data repository association instead",
                location="LustreConfiguration.ImportPath",
            )


@rule("lustre-export-path", source=f"{_CONFIGURATION}.ExportPath")
def export_path(system: FileSystem) -> Iterator[Problem]:
    """Require that the export path is in the bucket of the import path."""
    link = system.legacy_link
    if not isinstance(link.import_path, str) or not isinstance(link.export_path, str):
        return
    ours, theirs = (_IMPORT_PATH.fullmatch(path) for path in (link.export_path, link.import_path))
    if ours is None or (theirs is not None and ours["bucket"] != theirs["bucket"]):
        yield Problem(
            what="export_path",
            allowed="be s3://bucket/prefix in the bucket of import_path",
            got=link.export_path,
            remedy="choose another prefix of that bucket, or link with an association",
            location="LustreConfiguration.ExportPath",
        )


@rule("lustre-import-chunk-size", source=f"{_CONFIGURATION}.ImportedFileChunkSize")
def import_chunk_size(system: FileSystem) -> Iterator[Problem]:
    """Require that the chunk size of imported files is 1 to 512,000 MiB."""
    got, most = system.legacy_link.imported_file_chunk_size_mib, catalog.lustre.association_limits()
    if got is None or isinstance(got, Unknown):
        return
    if not is_whole(got) or not 1 <= got <= most.chunk_size_mib_maximum:
        yield Problem(
            what="imported_file_chunk_size_mib",
            allowed=f"be a whole number from 1 to {most.chunk_size_mib_maximum}",
            got=got,
            remedy=f"{most.chunk_size_mib_default} is the default",
            location="LustreConfiguration.ImportedFileChunkSize",
        )


@rule("lustre-import-policy", source=f"{_CONFIGURATION}.AutoImportPolicy")
def import_policy(system: FileSystem) -> Iterator[Problem]:
    """Require that the import policy exists."""
    got, allowed = system.legacy_link.auto_import_policy, lustre_limits().import_policies
    if got is not None and not isinstance(got, Unknown) and got not in allowed:
        yield Problem(
            what="auto_import_policy",
            allowed=f"be one of {listed(allowed)}",
            got=got,
            remedy="NONE is the default",
            location="LustreConfiguration.AutoImportPolicy",
        )


@rule("lustre-two-links", source=f"{_CONFIGURATION}.ImportPath; FSx API, DataRepositoryAssociation")
def two_links(system: FileSystem) -> Iterator[Problem]:
    """Require that import path and associations do not go together."""
    if system.linked and system.legacy_link.given and system.deployment_type != "PERSISTENT_2":
        yield Problem(
            what="import_path",
            allowed="be left out beside data repository associations",
            got=system.legacy_link.import_path or Words("a link in the file system's own properties"),
            remedy="keep the associations only",
            location="LustreConfiguration.ImportPath",
        )


@rule("lustre-backup-days", source=f"{_CONFIGURATION}.AutomaticBackupRetentionDays")
def backup_days(system: FileSystem) -> Iterator[Problem]:
    """Require that backups are kept 0 to 90 days."""
    got, most = system.backup_retention_days, lustre_limits().backup_days_maximum
    if got is None or isinstance(got, Unknown):
        return
    if not is_whole(got) or not 0 <= got <= most:
        yield Problem(
            what="automatic_backup_retention_days",
            allowed=f"be a whole number from 0 to {most}",
            got=got,
            remedy="0 turns backups off",
            location="LustreConfiguration.AutomaticBackupRetentionDays",
        )


@rule("lustre-backups", source='FSx error: "Backups cannot be created on S3-linked file systems"; FSx guide, backups')
def backups(system: FileSystem) -> Iterator[Problem]:
    """Require that scratch and S3-linked file systems have no backups."""
    days = system.backup_retention_days
    linked = system.linked or system.legacy_link.given
    if not isinstance(days, int) or days <= 0 or not (linked or system.deployment_type in SCRATCH):
        return
    what = str(system.deployment_type) if system.deployment_type in SCRATCH else "an S3-linked file system"
    yield Problem(
        what="automatic_backup_retention_days",
        allowed=f"be 0 for {what}",
        got=days,
        remedy="its durable copy is the linked bucket" if linked else "backups need a persistent type",
        location="LustreConfiguration.AutomaticBackupRetentionDays",
    )


@rule("lustre-backup-tags", source="FSx API, CreateFileSystemLustreConfiguration.CopyTagsToBackups")
def backup_tags(system: FileSystem) -> Iterator[Problem]:
    """Require that s3-linked file systems copy no tags to backups."""
    if system.copy_tags_to_backups is True and (system.linked or system.legacy_link.given):
        yield Problem(
            what="copy_tags_to_backups",
            allowed="be false for an S3-linked file system",
            got=True,
            remedy="it has no backups",
            location="LustreConfiguration.CopyTagsToBackups",
        )


@rule("lustre-key", source="FSx API, CreateFileSystemRequest.KmsKeyId")
def key(system: FileSystem) -> Iterator[Problem]:
    """Require that scratch file systems take no KMS key."""
    if system.encryption_key is not None and system.deployment_type in SCRATCH:
        yield Problem(
            what="encryption_key",
            allowed=f"be left out for {system.deployment_type}",
            got=Words("a key") if isinstance(system.encryption_key, Unknown) else system.encryption_key,
            remedy="scratch is encrypted with a key of the service; a KMS key needs a persistent type",
            location="KmsKeyId",
        )


@rule("lustre-log-level", source="FSx API, LustreLogCreateConfiguration.Level")
def log_level(system: FileSystem) -> Iterator[Problem]:
    """Require that the log level exists."""
    logging, allowed = system.logging, lustre_limits().log_levels
    if isinstance(logging, Logging) and not isinstance(logging.level, Unknown) and logging.level not in allowed:
        yield Problem(
            what="log_level",
            allowed=f"be one of {listed(allowed)}",
            got=logging.level,
            remedy="WARN_ERROR logs most",
            location="LustreConfiguration.LogConfiguration.Level",
        )


@rule("lustre-log-group", source="FSx API, LustreLogCreateConfiguration.Destination")
def log_group(system: FileSystem) -> Iterator[Problem]:
    """Require that logs go to a group /aws/fsx… of the Region, and nowhere at the level DISABLED."""
    logging, prefix = system.logging, lustre_limits().log_group_prefix
    if not isinstance(logging, Logging) or logging.group is None:
        return
    location = "LustreConfiguration.LogConfiguration.Destination"
    if logging.level == "DISABLED":
        yield Problem(
            what="log_group",
            allowed="be left out at level DISABLED",
            got=Words("a log group") if isinstance(logging.group, Unknown) else logging.group,
            remedy="choose another level or no group",
            location=location,
        )
    elif not isinstance(logging.group, Unknown) and not logging.group.startswith(prefix):
        yield Problem(
            what="log_group",
            allowed=f"be a log group whose name begins with {prefix}/",
            got=logging.group,
            remedy=f"rename it, such as {prefix}/training",
            location=location,
        )
    elif isinstance(logging.region, str) and system.region is not None and logging.region != system.region.name:
        yield Problem(
            what="log_group",
            allowed=f"be in the file system's Region {system.region.name}",
            got=logging.region,
            remedy="use a log group of that Region",
            location=location,
        )
    elif isinstance(logging.partition, str) and system.region and logging.partition != system.region.partition:
        yield Problem(
            what="log_group",
            allowed=f"be in the partition {system.region.partition} of {system.region.name}",
            got=logging.partition,
            remedy="write ${AWS::Partition} instead",
            location=location,
        )


@rule("lustre-compression", source=f"{_CONFIGURATION}.DataCompressionType")
def compression(system: FileSystem) -> Iterator[Problem]:
    """Require that data is compressed with LZ4 or not at all."""
    got, allowed = system.data_compression, lustre_limits().compressions
    if got is not None and not isinstance(got, Unknown) and got not in allowed:
        yield Problem(
            what="data_compression",
            allowed=f"be one of {listed(allowed)}",
            got=got,
            remedy="LZ4 is safe for every kind of data",
            location="LustreConfiguration.DataCompressionType",
        )


@rule("lustre-root-squash", source="FSx API, LustreRootSquashConfiguration")
def root_squash(system: FileSystem) -> Iterator[Problem]:
    """Require that root is squashed to UID:GID, each 0 to 4,294,967,294, with at most 64 exceptions."""
    squash, limits = system.root_squash, lustre_limits()
    if not isinstance(squash, RootSquash):
        return
    location, most = "LustreConfiguration.RootSquashConfiguration", limits.root_squash_id_maximum
    if isinstance(squash.root_squash, str):
        ids = re.fullmatch(r"(\d{1,10}):(\d{1,10})", squash.root_squash)
        if ids is None or any(int(number) > most for number in ids.groups()):
            yield Problem(
                what="root_squash",
                allowed=f"be UID:GID with each from 0 to {most}",
                got=squash.root_squash,
                remedy="such as 65534:65534",
                location=f"{location}.RootSquash",
            )
    if len(squash.no_squash_nids) > limits.no_squash_nids_maximum:
        yield Problem(
            what="no_squash_nids",
            allowed=f"name at most {limits.no_squash_nids_maximum} clients",
            got=Words(f"{len(squash.no_squash_nids)} clients"),
            remedy="name ranges of addresses",
            location=f"{location}.NoSquashNids",
        )


@rule("lustre-network-type", source="FSx API, CreateFileSystemRequest.NetworkType")
def network_type(system: FileSystem) -> Iterator[Problem]:
    """Require that lustre file systems have no network type: they speak IPv4."""
    if system.network_type is not None:
        yield Problem(
            what="network_type",
            allowed="be left out for Lustre",
            got=Words("a network type") if isinstance(system.network_type, Unknown) else system.network_type,
            remedy="it belongs to Windows, ONTAP and OpenZFS",
            location="NetworkType",
        )


@rule("lustre-maintenance-time", source=f"{_CONFIGURATION}.WeeklyMaintenanceStartTime")
def maintenance_time(system: FileSystem) -> Iterator[Problem]:
    """Require that the maintenance window begins at d:HH:MM."""
    got = system.weekly_maintenance_start_time
    if got is not None and not isinstance(got, Unknown) and not _MAINTENANCE.fullmatch(got):
        yield Problem(
            what="weekly_maintenance_start_time",
            allowed="be d:HH:MM in UTC with d from 1 (Monday) to 7",
            got=got,
            remedy="such as '7:03:00'",
            location="LustreConfiguration.WeeklyMaintenanceStartTime",
        )


@rule("lustre-tags", source="FSx guide, limits")
def tags(system: FileSystem) -> Iterator[Problem]:
    """Require that a file system has at most 50 tags."""
    most = lustre_limits().tags_maximum
    if not isinstance(system.tags, Unknown) and system.tags > most:
        yield Problem(
            what="tags",
            allowed=f"be at most {most}",
            got=Words(f"{system.tags} tags"),
            remedy="drop some",
            location="Tags",
        )


RULES = (
    subnets,
    drive_cache,
    import_path,
    import_path_form,
    export_path,
    import_chunk_size,
    import_policy,
    two_links,
    backup_days,
    backups,
    backup_tags,
    key,
    log_level,
    log_group,
    compression,
    root_squash,
    network_type,
    maintenance_time,
    tags,
)
