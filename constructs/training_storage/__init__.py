"""Plan, price and provision the storage of a training job on AWS.

The public names are loaded when they are first used, so that planning alone needs neither CDK nor boto3.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training_storage.checkpoint_archive import CheckpointArchive
    from training_storage.data_lake import DataLake, DataLakeBase, FolderLifecycle, ImportedDataLake
    from training_storage.data_repository_association import DataRepositoryAssociation
    from training_storage.directory_bucket import DirectoryBucket
    from training_storage.directory_bucket_base import DirectoryBucketBase
    from training_storage.express_gate import ExpressGate
    from training_storage.final_export import FinalExport
    from training_storage.fsx_key_access import allow_file_systems_to_use_key
    from training_storage.gpu_cluster import AwsPcsCluster, Ec2AutoScalingCluster, GpuCluster, HomeFileSystem
    from training_storage.imported_directory_bucket import ImportedDirectoryBucket
    from training_storage.imported_lustre_file_system import ImportedLustreFileSystem
    from training_storage.lustre_file_system import LustreFileSystem
    from training_storage.lustre_file_system_base import LustreFileSystemBase
    from training_storage.node_kit import NodeKit
    from training_storage.park import Park
    from training_storage.planning import (
        InvalidJobError,
        InvalidPlanError,
        NoTierError,
        PlanningError,
        StoragePlan,
        TrainingJob,
        plan_storage,
    )
    from training_storage.scheduled_release import ScheduledRelease
    from training_storage.storage import TrainingStorage
    from training_storage.storage_alarms import StorageAlarms
    from training_storage.storage_contract import StorageContractParameter
    from training_storage.training_network import TrainingNetwork
    from training_storage.validation import ConstructError
    from training_storage.validation_plugin import StorageLegalityChecks

    __version__: str

_DISTRIBUTION = "training-storage"
_MODULE_OF_NAME = {
    "AwsPcsCluster": "gpu_cluster",
    "CheckpointArchive": "checkpoint_archive",
    "ConstructError": "validation",
    "DataLake": "data_lake",
    "DataLakeBase": "data_lake",
    "DataRepositoryAssociation": "data_repository_association",
    "DirectoryBucket": "directory_bucket",
    "DirectoryBucketBase": "directory_bucket_base",
    "Ec2AutoScalingCluster": "gpu_cluster",
    "ExpressGate": "express_gate",
    "FinalExport": "final_export",
    "FolderLifecycle": "data_lake",
    "GpuCluster": "gpu_cluster",
    "HomeFileSystem": "gpu_cluster",
    "ImportedDataLake": "data_lake",
    "ImportedDirectoryBucket": "imported_directory_bucket",
    "ImportedLustreFileSystem": "imported_lustre_file_system",
    "InvalidJobError": "planning",
    "InvalidPlanError": "planning",
    "LustreFileSystem": "lustre_file_system",
    "LustreFileSystemBase": "lustre_file_system_base",
    "NoTierError": "planning",
    "NodeKit": "node_kit",
    "Park": "park",
    "PlanningError": "planning",
    "ScheduledRelease": "scheduled_release",
    "StorageAlarms": "storage_alarms",
    "StorageContractParameter": "storage_contract",
    "StorageLegalityChecks": "validation_plugin",
    "StoragePlan": "planning",
    "TrainingJob": "planning",
    "TrainingNetwork": "training_network",
    "TrainingStorage": "storage",
    "allow_file_systems_to_use_key": "fsx_key_access",
    "plan_storage": "planning",
}

__all__ = [
    "AwsPcsCluster",
    "CheckpointArchive",
    "ConstructError",
    "DataLake",
    "DataLakeBase",
    "DataRepositoryAssociation",
    "DirectoryBucket",
    "DirectoryBucketBase",
    "Ec2AutoScalingCluster",
    "ExpressGate",
    "FinalExport",
    "FolderLifecycle",
    "GpuCluster",
    "HomeFileSystem",
    "ImportedDataLake",
    "ImportedDirectoryBucket",
    "ImportedLustreFileSystem",
    "InvalidJobError",
    "InvalidPlanError",
    "LustreFileSystem",
    "LustreFileSystemBase",
    "NoTierError",
    "NodeKit",
    "Park",
    "PlanningError",
    "ScheduledRelease",
    "StorageAlarms",
    "StorageContractParameter",
    "StorageLegalityChecks",
    "StoragePlan",
    "TrainingJob",
    "TrainingNetwork",
    "TrainingStorage",
    "allow_file_systems_to_use_key",
    "plan_storage",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        return _version()
    module = _MODULE_OF_NAME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def _version() -> str:
    """Return the installed version, which stands in pyproject.toml alone; a source tree on the path has none."""
    from importlib import metadata  # noqa: PLC0415 -- takes longer to load than all of planning

    try:
        return metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "0+not.installed"
