"""The same rules for a plan: its file system, its links and its directory bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training_storage.planning import catalog
from training_storage.planning.legality import engine
from training_storage.planning.legality.clients import EfaClients
from training_storage.planning.legality.express import DirectoryBucket
from training_storage.planning.legality.links import Link
from training_storage.planning.legality.lustre_spec import FileSystem, MetadataConfiguration

if TYPE_CHECKING:
    from training_storage.planning.legality.finding import Finding
    from training_storage.planning.plan import LustrePlan, StoragePlan


def check_plan(plan: StoragePlan) -> tuple[Finding, ...]:
    """Return what of a plan the services would refuse; a plan may be an edited file."""
    region = catalog.region(plan.region)
    found: list[Finding] = []
    if plan.fsx_lustre is not None:
        system = planned_file_system(plan.fsx_lustre, region=region)
        found += engine.check_file_system(system)
        found += _check_links(plan.fsx_lustre, system)
        if plan.fsx_lustre.efa_enabled:
            clients = EfaClients(
                instance_type=plan.job.instance_type or "",
                instances=plan.job.instances,
                interfaces_per_client=plan.fsx_lustre.efa_interfaces_per_client,
                gds=plan.job.network_path == "efa-gds",
            )
            found += engine.check_efa_clients(clients)
    if plan.s3_express is not None:
        found += engine.check_directory_bucket(DirectoryBucket(zone_id=plan.s3_express.zone_id, region=region))
    return tuple(found)


def planned_file_system(plan: LustrePlan, *, region: catalog.Region | None = None) -> FileSystem:
    """Return the file system of a plan; what scratch has fixed is no parameter."""
    kind = catalog.lustre.deployment_types().get(plan.deployment_type)
    metadata = None
    if plan.metadata_iops is not None:
        own = plan.metadata_mode == "USER_PROVISIONED"
        metadata = MetadataConfiguration(mode=plan.metadata_mode, iops=plan.metadata_iops if own else None)
    return FileSystem(
        deployment_type=plan.deployment_type,
        storage_capacity_gib=plan.storage_capacity_gib,
        per_unit_storage_throughput=None
        if kind is not None and kind.fixed_throughput
        else plan.per_unit_storage_throughput,
        file_system_type_version=plan.file_system_type_version,
        metadata=metadata,
        efa_enabled=plan.efa_enabled,
        linked=bool(plan.data_repository_associations),
        region=region,
    )


def _check_links(plan: LustrePlan, system: FileSystem) -> list[Finding]:
    found: list[Finding] = []
    before: list[Link] = []
    for folder in plan.data_repository_associations:
        link = Link(
            file_system_path=folder.file_system_path,
            # A plan writes {data_lake} for a bucket whose name is known only at deployment.
            data_repository_path=folder.data_repository_path.replace("{", "${"),
            import_events=folder.auto_import_events,
            export_events=folder.auto_export_events,
            file_system=system,
        )
        found += engine.check_link(link)
        found += engine.check_link_beside(link, before)
        before.append(link)
    return found
