"""EC2 Auto Scaling as the engine, for those who bring their own scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from aws_cdk import Stack
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam

from training_storage.acknowledgements import acknowledge
from training_storage.gpu_cluster.base import COMPUTE, GpuCluster
from training_storage.gpu_cluster.launch_template import make_launch_template, node_name
from training_storage.gpu_cluster.user_data import shell_script
from training_storage.planning.catalog import images

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aws_cdk import aws_kms as kms
    from constructs import Construct

    from training_storage.gpu_cluster.base import BootCommands
    from training_storage.planning.catalog import InstanceType

__all__ = ["Ec2AutoScalingCluster"]


class Ec2AutoScalingCluster(GpuCluster):
    """An Auto Scaling group of training nodes that starts at zero.

    Minimum and desired are 0: a stack that waited for accelerators would fail when there are none, and starting them is
    an act of its own. One group serves any number of reservations. Parameters: see `GpuCluster`.
    """

    engine: ClassVar[str] = "ec2"
    # Session Manager (ssm, ssmmessages; ec2messages is where agents older than 3.3.40 ask for work), logs and metrics
    # (logs, monitoring), credentials (sts), and the node's view of itself and its file system (ec2, fsx).
    node_apis: ClassVar[tuple[str, ...]] = (
        "ssm",
        "ssmmessages",
        "ec2messages",
        "ec2",
        "logs",
        "monitoring",
        "sts",
        "fsx",
    )
    node_roles: ClassVar[tuple[str, ...]] = (COMPUTE,)
    has_home: ClassVar[bool] = False
    runs_slurm: ClassVar[bool] = False

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc,
        subnet: ec2.ISubnet,
        instance_type: InstanceType,
        instances: int,
        client_security_groups: Sequence[ec2.ISecurityGroup] = (),
        purchase: str = "on-demand",
        capacity_reservation_ids: Sequence[str] = (),
        ami_parameter: str | None = None,
        several_addresses: bool = False,
        boot_commands: BootCommands | None = None,
        encryption_key: kms.IKey | None = None,
        home_file_system_id: str | None = None,
        slurm_version: str | None = None,
        root_volume_gib: int = 200,
    ) -> None:
        super().__init__(
            scope,
            id,
            vpc=vpc,
            subnet=subnet,
            instance_type=instance_type,
            instances=instances,
            client_security_groups=client_security_groups,
            purchase=purchase,
            capacity_reservation_ids=capacity_reservation_ids,
            ami_parameter=ami_parameter,
            several_addresses=several_addresses,
            boot_commands=boot_commands,
            encryption_key=encryption_key,
            home_file_system_id=home_file_system_id,
            slurm_version=slurm_version,
            root_volume_gib=root_volume_gib,
        )
        self.roles = {COMPUTE: self._make_role("Role", "Training nodes")}
        self.launch_template = self._make_launch_template(capacity_reservation_ids)
        self.auto_scaling_group = self._make_auto_scaling_group(list(capacity_reservation_ids))
        self._add_starter(self.auto_scaling_group)
        acknowledge(
            self.auto_scaling_group,
            rule="AS3",
            reason="Nodes come and go with the jobs of the caller's scheduler; a notice for each would be noise.",
        )

        region = Stack.of(self).region
        group_name = self.auto_scaling_group.ref
        self.start_nodes_command: str = (
            f"aws autoscaling set-desired-capacity --region {region} --auto-scaling-group-name {group_name}"
            f" --desired-capacity {instances}"
        )
        self.start_nodes_description: str = "Starts (and bills) the nodes"
        self.start_session_command: str = (
            f"aws ssm start-session --region {region} --target $(aws autoscaling describe-auto-scaling-groups"
            f" --region {region} --auto-scaling-group-names {group_name}"
            " --query 'AutoScalingGroups[0].Instances[0].InstanceId' --output text)"
        )

    def _make_launch_template(self, reservation_ids: Sequence[str]) -> ec2.CfnLaunchTemplate:
        parameter = self.ami_parameter or images.default_parameter(self.instance_type)
        profile = iam.CfnInstanceProfile(self, "InstanceProfile", roles=[self.role.role_name])
        return make_launch_template(
            self,
            "LaunchTemplate",
            name_tag=node_name(self, "node"),
            network_interfaces=self.instance_type.network_interfaces(several_addresses=self.several_addresses),
            security_groups=self.node_security_groups,
            root_device_name=images.root_device_name(parameter),
            root_volume_gib=self.root_volume_gib,
            image_id=ec2.MachineImage.from_ssm_parameter(parameter).get_image(self).image_id,
            instance_type=self.instance_type.name,
            instance_profile_arn=profile.attr_arn,
            market_type=None if self.purchase == "on-demand" else self.purchase,
            placement_group_name=self.placement_group.ref if self.placement_group else None,
            user_data=shell_script(self._commands(COMPUTE, reservation_ids)),
        )

    def _make_auto_scaling_group(self, reservation_ids: list[str]) -> autoscaling.CfnAutoScalingGroup:
        properties = autoscaling.CfnAutoScalingGroup
        return autoscaling.CfnAutoScalingGroup(
            self,
            "AutoScalingGroup",
            # No DesiredCapacity: it begins at the minimum, and stated it would stop running nodes at every update.
            min_size="0",
            max_size=str(self.instances),
            vpc_zone_identifier=[self.subnet.subnet_id],
            launch_template=properties.LaunchTemplateSpecificationProperty(
                launch_template_id=self.launch_template.ref,
                version=self.launch_template.attr_latest_version_number,
            ),
            # Here, where a list fits, and not in the template, which takes one.
            capacity_reservation_specification=properties.CapacityReservationSpecificationProperty(
                capacity_reservation_preference="capacity-reservations-only",
                capacity_reservation_target=properties.CapacityReservationTargetProperty(
                    capacity_reservation_ids=reservation_ids
                ),
            )
            if reservation_ids
            else None,
            tags=[properties.TagPropertyProperty(key="Name", value=node_name(self, "node"), propagate_at_launch=True)],
        )
