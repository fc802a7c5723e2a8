"""Rules: what of FSx for Lustre exists in a Region."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training_storage.planning import catalog
from training_storage.planning.catalog.limits import lustre_limits
from training_storage.planning.legality.finding import Problem, Unknown, listed, rule
from training_storage.planning.legality.lustre_spec import TIERING, FileSystem

if TYPE_CHECKING:
    from collections.abc import Iterator

_SOURCE = "FSx guide, using-fsx-lustre (availability by Region); CloudFormation schemas by Region"


@rule("region-lustre", source=_SOURCE)
def lustre(system: FileSystem) -> Iterator[Problem]:
    """Require that the Region has FSx for Lustre."""
    if system.region is not None and not system.region.lustre_deployment_types:
        yield Problem(
            what="region",
            allowed="have FSx for Lustre",
            got=system.region.name,
            remedy="use another Region, or S3 alone",
        )


@rule("region-deployment-type", source=_SOURCE)
def deployment_type(system: FileSystem) -> Iterator[Problem]:
    """Require that the Region has the deployment type."""
    if system.region is None or system.deployment_type not in lustre_limits().deployment_types:
        return
    allowed = system.region.lustre_deployment_types
    # SCRATCH_1 is the API's old default; where scratch is offered, it is as well.
    offered = {*allowed, "SCRATCH_1"} if "SCRATCH_2" in allowed else set(allowed)
    if allowed and system.deployment_type not in offered:
        yield Problem(
            what="deployment_type",
            allowed=f"be one of {listed(allowed)} in {system.region.name}",
            got=system.deployment_type,
            remedy=f"use {allowed[0]}, or another Region",
            location="LustreConfiguration.DeploymentType",
        )


@rule("region-throughput", source=_SOURCE)
def throughput(system: FileSystem) -> Iterator[Problem]:
    """Require that the Region has the throughput tier of PERSISTENT_2."""
    region, got = system.region, system.per_unit_storage_throughput
    if region is None or system.deployment_type != "PERSISTENT_2" or system.storage_type != "SSD":
        return
    tiers = region.persistent_2_throughputs
    everywhere = catalog.lustre.deployment_types()["PERSISTENT_2"].throughputs
    if not tiers or got in tiers or got not in everywhere:
        return
    yield Problem(
        what="per_unit_storage_throughput",
        allowed=f"be one of {listed(tiers)} in {region.name}",
        got=got,
        remedy=f"use {tiers[-1]} and more capacity, or another Region",
        location="LustreConfiguration.PerUnitStorageThroughput",
    )


@rule("region-efa", source=_SOURCE)
def efa(system: FileSystem) -> Iterator[Problem]:
    """Require that the Region has file systems with EFA."""
    if system.efa_enabled is True and system.region is not None and not system.region.lustre_efa:
        yield Problem(
            what="efa_enabled",
            allowed=f"be false in {system.region.name}, where file systems have no EFA",
            got=True,
            remedy="leave EFA out, or use another Region",
            location="LustreConfiguration.EfaEnabled",
        )


@rule("region-version", source="FSx guide for China Regions, using-fsx-lustre (docs.amazonaws.cn)")
def version(system: FileSystem) -> Iterator[Problem]:
    """Require that the Region has the Lustre version; in China 2.12 is the newest."""
    region, got = system.region, system.file_system_type_version
    if region is None or got is None or isinstance(got, Unknown) or not region.lustre_deployment_types:
        return
    if _number(got) > _number(region.lustre_version):
        yield Problem(
            what="file_system_type_version",
            allowed=f"be {region.lustre_version} or older in {region.name}",
            got=got,
            remedy=f"use {region.lustre_version}; associations need 2.12 at least",
            location="FileSystemTypeVersion",
        )


@rule("region-storage-type", source=_SOURCE)
def storage_type(system: FileSystem) -> Iterator[Problem]:
    """Require that Intelligent-Tiering stands only where PERSISTENT_2 does."""
    region = system.region
    if system.storage_type == TIERING and region is not None and region.lustre_deployment_types:
        allowed = region.lustre_deployment_types
        if "PERSISTENT_2" not in allowed and system.deployment_type == "PERSISTENT_2":
            yield Problem(
                what="storage_type",
                allowed=f"be SSD or HDD in {region.name}, which has no PERSISTENT_2",
                got=TIERING,
                remedy=f"use {allowed[0]}, or another Region",
                location="StorageType",
            )


def _number(version: str) -> tuple[int, ...]:
    """Return a version that compares; text that is none is the oldest (another rule refuses it)."""
    parts = version.split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()


RULES = (lustre, deployment_type, throughput, efa, version, storage_type)
