"""What a typed consumer writes: plans go into constructs, and what a construct exposes goes into the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training_storage import (
    DataLake,
    DataRepositoryAssociation,
    FinalExport,
    LustreFileSystem,
    PlanningError,
    StoragePlan,
    TrainingJob,
    TrainingStorage,
    plan_storage,
)

if TYPE_CHECKING:
    from constructs import Construct


def planned(instances: int) -> StoragePlan | str:
    """Plan, or say in one line why not."""
    try:
        return plan_storage(TrainingJob(instances=instances))
    except PlanningError as error:
        return str(error)


def whole(scope: Construct, plan: StoragePlan) -> TrainingStorage:
    """Everything, as the plan says."""
    return TrainingStorage(scope, "Storage", plan=plan, data_lake=DataLake(scope, "Lake"), egress="isolated")


def parts(scope: Construct, storage: TrainingStorage, lake: DataLake) -> tuple[LustreFileSystem, FinalExport] | None:
    """One tier, put together by hand in the network of another."""
    network, sizes = storage.network, planned(32)
    if network is None or isinstance(sizes, str) or sizes.fsx_lustre is None:
        return None
    file_system = LustreFileSystem(
        scope,
        "FileSystem",
        vpc=network.vpc,
        subnet=network.subnet,
        storage_capacity_gib=sizes.fsx_lustre.storage_capacity_gib,
        per_unit_storage_throughput=sizes.fsx_lustre.per_unit_storage_throughput,
    )
    DataRepositoryAssociation(
        scope, "Link", file_system=file_system, file_system_path="/datasets", data_lake=lake, prefix="datasets/"
    )
    return file_system, FinalExport(scope, "Export", file_system=file_system, data_lake=lake, job_name="parts")
