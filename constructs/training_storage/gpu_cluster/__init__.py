"""The accelerators of a training job, on an existing engine: one interface, one engine a file."""

from training_storage.gpu_cluster.aws_pcs import AwsPcsCluster
from training_storage.gpu_cluster.base import COMPUTE, LOGIN, BootCommands, GpuCluster
from training_storage.gpu_cluster.ec2_auto_scaling import Ec2AutoScalingCluster
from training_storage.gpu_cluster.home_file_system import HomeFileSystem

__all__ = [
    "COMPUTE",
    "ENGINES",
    "LOGIN",
    "AwsPcsCluster",
    "BootCommands",
    "Ec2AutoScalingCluster",
    "GpuCluster",
    "HomeFileSystem",
]

ENGINES: dict[str, type[GpuCluster]] = {cluster.engine: cluster for cluster in (AwsPcsCluster, Ec2AutoScalingCluster)}
"""Engine name, as in `-c engine=`, to its class. Further engines stand in a file of their own and in a line here, and
in `training_storage.planning.engines` with what they refuse."""
