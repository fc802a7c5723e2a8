"""The accelerators of a training job, on an existing engine: one interface, one engine a file."""

from training_storage.gpu_cluster.base import GpuCluster
from training_storage.gpu_cluster.ec2_auto_scaling import Ec2AutoScalingCluster

__all__ = ["ENGINES", "Ec2AutoScalingCluster", "GpuCluster"]

ENGINES: dict[str, type[GpuCluster]] = {Ec2AutoScalingCluster.engine: Ec2AutoScalingCluster}
"""Engine name, as in `-c engine=`, to its class."""
