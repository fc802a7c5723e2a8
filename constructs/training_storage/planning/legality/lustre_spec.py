"""A file system as it is asked for, before anything is checked."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from training_storage.planning.catalog.limits import lustre_limits
from training_storage.planning.legality.finding import UNKNOWN, Flag, Number, Text, Unknown

if TYPE_CHECKING:
    from training_storage.planning.catalog import Region

SCRATCH = ("SCRATCH_1", "SCRATCH_2")
PERSISTENT = ("PERSISTENT_1", "PERSISTENT_2")
TIERING = "INTELLIGENT_TIERING"
#: Fields whose value no rule looks into: only that, or how often, they are given.
_NOT_LOOKED_INTO = ("subnets", "tags", "encryption_key")


@dataclass(frozen=True, kw_only=True)
class MetadataConfiguration:
    """``LustreConfiguration.MetadataConfiguration``."""

    mode: Text = None
    iops: Number = None


@dataclass(frozen=True, kw_only=True)
class ReadCache:
    """``LustreConfiguration.DataReadCacheConfiguration``; the size is GiB."""

    sizing_mode: Text = None
    size_gib: Number = None


@dataclass(frozen=True, kw_only=True)
class Logging:
    """``LustreConfiguration.LogConfiguration``; name, Region and partition of the log group are its destination's."""

    level: Text = None
    group: Text = None
    region: Text = None
    partition: Text = None


@dataclass(frozen=True, kw_only=True)
class LegacyLink:
    """The link properties of ``LustreConfiguration`` itself, older than associations."""

    import_path: Text = None
    export_path: Text = None
    imported_file_chunk_size_mib: Number = None
    auto_import_policy: Text = None

    @property
    def given(self) -> bool:
        """Whether any of them is given; an import policy of NONE says nothing."""
        return any(
            value not in (None, "NONE")
            for value in (
                self.import_path,
                self.export_path,
                self.imported_file_chunk_size_mib,
                self.auto_import_policy,
            )
        )


@dataclass(frozen=True, kw_only=True)
class RootSquash:
    """``RootSquashConfiguration``, which only the API takes."""

    root_squash: Text = None
    no_squash_nids: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FileSystem:
    """What CreateFileSystem is asked for. None is left out; UNKNOWN is known only at deployment.

    Capacities are GiB, `per_unit_storage_throughput` MB/s per TiB, `throughput_capacity` MB/s.

    Parameters
    ----------
    linked
        Whether a data repository association links it.
    from_backup
        Whether it is made from a backup, which brings capacity, types and version along.
    region
        The Region; None where it is not known.
    subnets, tags
        How many are given; UNKNOWN where that is not known.
    small_tiering_throughput
        Accept 1000 and 2000 MB/s of throughput capacity as well (docs/decisions/0005).
    """

    deployment_type: str | Unknown = "SCRATCH_1"
    storage_type: str | Unknown = "SSD"
    storage_capacity_gib: Number = None
    per_unit_storage_throughput: Number = None
    throughput_capacity: Number = None
    file_system_type_version: Text = None
    metadata: MetadataConfiguration | Unknown | None = None
    efa_enabled: Flag = None
    drive_cache_type: Text = None
    read_cache: ReadCache | Unknown | None = None
    legacy_link: LegacyLink = field(default_factory=LegacyLink)
    linked: bool = False
    from_backup: bool = False
    backup_retention_days: Number = None
    copy_tags_to_backups: Flag = None
    encryption_key: Text = None
    logging: Logging | Unknown | None = None
    data_compression: Text = None
    root_squash: RootSquash | Unknown | None = None
    network_type: Text = None
    weekly_maintenance_start_time: Text = None
    subnets: int | Unknown = UNKNOWN
    tags: int | Unknown = UNKNOWN
    region: Region | None = None
    small_tiering_throughput: bool = False

    @property
    def version(self) -> str | Unknown:
        """The Lustre version: the given one, else the service's default for the deployment type."""
        if self.file_system_type_version is not None:
            return self.file_system_type_version
        if isinstance(self.deployment_type, Unknown):
            return UNKNOWN
        return lustre_limits().default_versions.get(self.deployment_type, UNKNOWN)

    @property
    def tiering(self) -> bool:
        """Whether it is Intelligent-Tiering for certain."""
        return self.storage_type == TIERING

    def unknown_fields(self) -> tuple[str, ...]:
        """Return what cannot be checked because it is known only at deployment, in the order of the fields."""
        names = []
        for member in fields(self):
            value = getattr(self, member.name)
            if value is UNKNOWN and member.name not in _NOT_LOOKED_INTO:
                names.append(member.name)
            elif isinstance(value, (MetadataConfiguration, ReadCache, Logging, LegacyLink)):
                names += [
                    f"{member.name}.{inner.name}" for inner in fields(value) if getattr(value, inner.name) is UNKNOWN
                ]
        return tuple(names)
