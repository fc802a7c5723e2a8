"""Rules: Lustre version, metadata configuration, EFA, and what Intelligent-Tiering demands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training_storage.planning import catalog
from training_storage.planning.catalog.limits import lustre_limits
from training_storage.planning.legality.finding import Problem, Unknown, Words, is_whole, listed, rule
from training_storage.planning.legality.lustre_spec import TIERING, FileSystem, MetadataConfiguration, ReadCache

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONFIGURATION = "FSx API, CreateFileSystemLustreConfiguration"
_METADATA = "FSx API, CreateFileSystemLustreMetadataConfiguration"
_METADATA_MODES = ("AUTOMATIC", "USER_PROVISIONED")
_VERSION_LOCATION = "FileSystemTypeVersion"
_NO_METADATA = Words("no metadata configuration")


@rule("lustre-version", source="FSx API, CreateFileSystemRequest.FileSystemTypeVersion")
def version(system: FileSystem) -> Iterator[Problem]:
    """Require that the Lustre version exists, and the deployment type has it."""
    got, limits = system.file_system_type_version, lustre_limits()
    if got is None or isinstance(got, Unknown):
        return
    second = system.deployment_type == "PERSISTENT_2"
    allowed = limits.persistent_2_versions if second else limits.versions
    if got not in allowed:
        yield Problem(
            what="file_system_type_version",
            allowed=f"be one of {listed(allowed)}{' for PERSISTENT_2' if second else ''}",
            got=got,
            remedy=f"{allowed[-1]} has every feature",
            location=_VERSION_LOCATION,
        )


@rule("lustre-version-features", source=f"{_METADATA}; FSx guide, efa-file-systems; service error text (2026-10)")
def version_features(system: FileSystem) -> Iterator[Problem]:
    """Require that metadata configuration, EFA and Intelligent-Tiering need Lustre 2.15."""
    got, limits = system.version, lustre_limits()
    if isinstance(got, Unknown) or system.deployment_type != "PERSISTENT_2" or got not in limits.persistent_2_versions:
        return
    needs = [
        ("a metadata configuration", isinstance(system.metadata, MetadataConfiguration), limits.metadata_versions),
        ("EFA", system.efa_enabled is True, limits.efa_versions),
        (TIERING, system.tiering, limits.tiering_versions),
    ]
    violated = [(what, versions) for what, given, versions in needs if given and got not in versions]
    if violated:
        yield Problem(
            what="file_system_type_version",
            allowed=f"be {listed(violated[0][1])} with {' and '.join(what for what, _ in violated)}",
            got=got,
            remedy=f"use {violated[0][1][-1]}; older versions have neither metadata configuration nor EFA",
            location=_VERSION_LOCATION,
        )


@rule("lustre-metadata-type", source="FSx guide, performance; service refuses it (trial of 2026-10)")
def metadata_type(system: FileSystem) -> Iterator[Problem]:
    """Require that only PERSISTENT_2 has a metadata configuration."""
    kind = system.deployment_type
    if not isinstance(system.metadata, MetadataConfiguration) or isinstance(kind, Unknown) or kind == "PERSISTENT_2":
        return
    yield Problem(
        what="metadata_configuration",
        allowed=f"be left out for {kind}",
        got=Words("a metadata configuration"),
        remedy="it needs PERSISTENT_2",
        location="LustreConfiguration.MetadataConfiguration",
    )


@rule("lustre-metadata-mode", source=f"{_METADATA}.Mode")
def metadata_mode(system: FileSystem) -> Iterator[Problem]:
    """Require that a metadata configuration has a mode."""
    if not isinstance(system.metadata, MetadataConfiguration) or isinstance(system.metadata.mode, Unknown):
        return
    if system.metadata.mode not in _METADATA_MODES:
        yield Problem(
            what="metadata_mode",
            allowed=f"be one of {listed(_METADATA_MODES)}",
            got=system.metadata.mode,
            remedy="AUTOMATIC follows the capacity",
            location="LustreConfiguration.MetadataConfiguration.Mode",
        )


@rule("lustre-metadata-iops", source=f"{_METADATA}.Iops; docs/decisions/0005")
def metadata_iops(system: FileSystem) -> Iterator[Problem]:
    """Require that metadata IOPS are one of the steps with USER_PROVISIONED; AUTOMATIC takes none."""
    metadata = system.metadata
    if not isinstance(metadata, MetadataConfiguration) or isinstance(metadata.iops, Unknown):
        return
    location = "LustreConfiguration.MetadataConfiguration.Iops"
    steps = catalog.lustre.metadata_iops_steps()
    if metadata.mode == "AUTOMATIC":
        if metadata.iops is not None:
            yield Problem(
                what="metadata_iops",
                allowed="be left out with mode AUTOMATIC",
                got=metadata.iops,
                remedy="or use mode USER_PROVISIONED",
                location=location,
            )
        return
    if metadata.iops is None and metadata.mode != "USER_PROVISIONED":
        return
    if not is_whole(metadata.iops) or metadata.iops not in steps:
        following = [step for step in steps if is_whole(metadata.iops) and step > metadata.iops]
        yield Problem(
            what="metadata_iops",
            allowed=f"be one of {listed(steps[:3])} or a multiple of {steps[3]} up to {steps[-1]}",
            got=metadata.iops,
            remedy=f"the next is {following[0]}" if following else f"the most is {steps[-1]}",
            location=location,
        )


@rule("lustre-metadata-iops-minimum", source=f"{_METADATA}.Iops; FSx guide, performance; docs/decisions/0005")
def metadata_iops_minimum(system: FileSystem) -> Iterator[Problem]:
    """Require that provisioned metadata IOPS on SSD are not fewer than AUTOMATIC gives at the capacity."""
    metadata, capacity = system.metadata, system.storage_capacity_gib
    if not isinstance(metadata, MetadataConfiguration) or metadata.mode != "USER_PROVISIONED":
        return
    if system.storage_type != "SSD" or not is_whole(capacity) or not is_whole(metadata.iops):
        return
    least = catalog.lustre.automatic_metadata_iops(capacity)
    if metadata.iops in catalog.lustre.metadata_iops_steps() and metadata.iops < least:
        yield Problem(
            what="metadata_iops",
            allowed=f"be at least {least} at {capacity} GiB, what AUTOMATIC gives",
            got=metadata.iops,
            remedy=f"use {least} or mode AUTOMATIC",
            location="LustreConfiguration.MetadataConfiguration.Iops",
        )


@rule("lustre-efa-type", source='FSx error: "EFA is only supported for PERSISTENT_2 filesystems with metadata …"')
def efa_type(system: FileSystem) -> Iterator[Problem]:
    """Require that EFA needs PERSISTENT_2."""
    kind = system.deployment_type
    if system.efa_enabled is True and not isinstance(kind, Unknown) and kind != "PERSISTENT_2":
        yield Problem(
            what="efa_enabled",
            allowed=f"be false for {kind}",
            got=True,
            remedy="EFA needs PERSISTENT_2, and only at creation",
            location="LustreConfiguration.EfaEnabled",
        )


@rule("lustre-efa-metadata", source='FSx error: "EFA is only supported for PERSISTENT_2 filesystems with metadata …"')
def efa_metadata(system: FileSystem) -> Iterator[Problem]:
    """Require that EFA needs a metadata configuration."""
    if system.efa_enabled is True and system.metadata is None and system.deployment_type == "PERSISTENT_2":
        yield Problem(
            what="metadata_configuration",
            allowed="be given with EFA",
            got=_NO_METADATA,
            remedy="add the mode AUTOMATIC",
            location="LustreConfiguration.MetadataConfiguration",
        )


@rule("lustre-efa-throughput", source=f"{_CONFIGURATION}.EfaEnabled")
def efa_throughput(system: FileSystem) -> Iterator[Problem]:
    """Require that EFA on Intelligent-Tiering needs a multiple of 4,000 MB/s, not 1,000 or 2,000."""
    got, limits = system.throughput_capacity, lustre_limits()
    if system.efa_enabled is True and system.tiering and got in limits.tiering_small_throughputs:
        yield Problem(
            what="throughput_capacity",
            allowed=f"be a multiple of {limits.tiering_throughput_step} MB/s with EFA",
            got=got,
            remedy=f"use {limits.tiering_throughput_step} or leave EFA out",
            location="LustreConfiguration.ThroughputCapacity",
        )


@rule("lustre-efa-flag", source=f"{_CONFIGURATION}.EfaEnabled")
def efa_flag(system: FileSystem) -> Iterator[Problem]:
    """Require that the EFA switch is true or false."""
    if isinstance(system.efa_enabled, str):
        yield Problem(
            what="efa_enabled",
            allowed="be true or false",
            got=system.efa_enabled,
            remedy="it cannot be changed after creation",
            location="LustreConfiguration.EfaEnabled",
        )


@rule("lustre-tiering-metadata", source="FSx guide, intelligent-tiering-file-systems; service refuses it (2026-10)")
def tiering_metadata(system: FileSystem) -> Iterator[Problem]:
    """Require that Intelligent-Tiering needs a metadata configuration."""
    if system.tiering and system.metadata is None:
        yield Problem(
            what="metadata_configuration",
            allowed=f"be given with {TIERING}",
            got=_NO_METADATA,
            remedy=f"add USER_PROVISIONED with {lustre_limits().tiering_metadata_iops_default} IOPS",
            location="LustreConfiguration.MetadataConfiguration",
        )


@rule("lustre-read-cache", source="FSx API, LustreReadCacheConfiguration")
def read_cache(system: FileSystem) -> Iterator[Problem]:
    """Require that Intelligent-Tiering needs a read cache configuration; nothing else has one."""
    cache, storage = system.read_cache, system.storage_type
    if isinstance(cache, Unknown) or isinstance(storage, Unknown):
        return
    location = "LustreConfiguration.DataReadCacheConfiguration"
    modes = lustre_limits().cache_modes
    if not system.tiering:
        if cache is not None:
            yield Problem(
                what="read_cache",
                allowed=f"be left out with {storage}",
                got=Words("a read cache configuration"),
                remedy=f"it belongs to {TIERING}",
                location=location,
            )
        return
    mode = None if cache is None else cache.sizing_mode
    if not isinstance(mode, Unknown) and mode not in modes:
        yield Problem(
            what="read_cache.sizing_mode",
            allowed=f"be one of {listed(modes)} with {TIERING}",
            got=mode,
            remedy="it is required",
            location=f"{location}.SizingMode",
        )


@rule("lustre-read-cache-size", source="FSx API, LustreReadCacheConfiguration.SizeGiB")
def read_cache_size(system: FileSystem) -> Iterator[Problem]:
    """Require that a provisioned read cache has 8 to 32,768 GiB per 1,000 MB/s; other modes take no size."""
    cache = system.read_cache
    if not system.tiering or not isinstance(cache, ReadCache) or isinstance(cache.sizing_mode, Unknown):
        return
    size, location = cache.size_gib, "LustreConfiguration.DataReadCacheConfiguration.SizeGiB"
    if isinstance(size, Unknown):
        return
    if cache.sizing_mode != "USER_PROVISIONED":
        if size is not None and cache.sizing_mode in lustre_limits().cache_modes:
            yield Problem(
                what="read_cache.size_gib",
                allowed=f"be left out with {cache.sizing_mode}",
                got=size,
                remedy="or use USER_PROVISIONED",
                location=location,
            )
        return
    throughput, limits = system.throughput_capacity, lustre_limits()
    thousands = throughput // 1000 if isinstance(throughput, int) and throughput > 0 else None
    least = limits.cache_gib_per_1000_minimum * (thousands or 1)
    most = limits.cache_gib_per_1000_maximum * (thousands or lustre_limits().tiering_throughput_maximum // 1000)
    if not is_whole(size) or not least <= size <= most:
        at = f" at {throughput} MB/s" if thousands else ""
        yield Problem(
            what="read_cache.size_gib",
            allowed=f"be a whole number from {least} to {most} GiB{at}",
            got=size,
            remedy="or use PROPORTIONAL_TO_THROUGHPUT_CAPACITY",
            location=location,
        )


RULES = (
    version,
    version_features,
    metadata_type,
    metadata_mode,
    metadata_iops,
    metadata_iops_minimum,
    efa_flag,
    efa_type,
    efa_metadata,
    efa_throughput,
    tiering_metadata,
    read_cache,
    read_cache_size,
)
