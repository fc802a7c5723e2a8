"""AWS PCS as the engine: managed Slurm, whose jobs start their nodes themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_pcs as pcs

from training_storage.acknowledgements import acknowledge
from training_storage.gpu_cluster.base import COMPUTE, LOGIN, GpuCluster
from training_storage.gpu_cluster.capacity import group_name
from training_storage.gpu_cluster.home_file_system import HomeFileSystem
from training_storage.gpu_cluster.launch_template import PLAIN_INTERFACE, make_launch_template, node_name
from training_storage.gpu_cluster.user_data import multipart
from training_storage.planning import catalog
from training_storage.planning.catalog import images
from training_storage.validation import ConstructError, require_integer, require_one_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aws_cdk import aws_kms as kms
    from constructs import Construct

    from training_storage.gpu_cluster.base import BootCommands
    from training_storage.gpu_cluster.capacity import NodeGroup
    from training_storage.planning.catalog import InstanceType

__all__ = ["AwsPcsCluster"]

# AWS PCS takes no instance profile whose role is not named AWSPCS… or under this path.
_ROLE_PATH = "/aws-pcs/"
_PURCHASE_OPTION = {"on-demand": "ONDEMAND", "spot": "SPOT", "capacity-block": "CAPACITY_BLOCK"}
_QUEUE = "train"
_PROLOG = "/usr/local/sbin/training-storage-prolog"
_READINESS_GATE = "/usr/local/bin/training-storage-ready"


class AwsPcsCluster(GpuCluster):
    """A Slurm cluster with one login node that always runs, and nodes with accelerators that run while jobs need them.

    A job in the queue starts its nodes; nodes that are idle end by themselves. The cluster is of the smallest size that
    holds `instances` and the login node; a job that outgrows it replaces the cluster, and with it Slurm's accounts of
    jobs. Each reservation or Capacity Block has a node group of its own, all of them behind one queue.

    Parameters
    ----------
    idle_seconds
        How long a node may be idle before AWS PCS ends it.
    login_instance_type
        Type of the login node, without accelerators; of the accelerators' architecture, for programs are built on it.

    Others: see `GpuCluster`.

    Attributes
    ----------
    home
        The shared /home of all nodes.
    queue_name
        Slurm's partition.
    """

    engine: ClassVar[str] = "pcs"
    # What the ec2 engine's nodes call, and pcs: a node registers itself (RegisterComputeNodeGroupInstance).
    node_apis: ClassVar[tuple[str, ...]] = (
        "ssm",
        "ssmmessages",
        "ec2messages",
        "ec2",
        "logs",
        "monitoring",
        "sts",
        "fsx",
        "pcs",
    )
    node_roles: ClassVar[tuple[str, ...]] = (COMPUTE, LOGIN)
    has_home: ClassVar[bool] = True
    runs_slurm: ClassVar[bool] = True
    home: HomeFileSystem
    queue_name: str = _QUEUE

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
        idle_seconds: int | None = None,
        login_instance_type: str | None = None,
    ) -> None:
        limits = catalog.pcs()
        version = limits.slurm_default_version if slurm_version is None else slurm_version
        require_one_of(version, limits.slurm_versions, what="slurm_version")
        idle = limits.idle_seconds if idle_seconds is None else idle_seconds
        require_integer(idle, what="idle_seconds", minimum=1, maximum=limits.idle_seconds_maximum)
        most = limits.node_groups_maximum - 1  # one is the login node's
        if len(capacity_reservation_ids) > most:
            raise ConstructError(
                f"capacity_reservation_ids must name at most {most} reservations for engine pcs, got:"
                f" {len(capacity_reservation_ids)}; an AWS PCS cluster has {limits.node_groups_maximum} node groups,"
                " one for the login node and one for each reservation. Take fewer, larger ones, or engine=ec2"
            )
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
        self._reservation_ids = tuple(capacity_reservation_ids)
        self._image_parameter = ami_parameter or images.pcs_parameter(instance_type) or ""
        self._image_id = ec2.MachineImage.from_ssm_parameter(self._image_parameter).get_image(self).image_id
        self.home = HomeFileSystem(
            self,
            "Home",
            vpc=vpc,
            subnet=subnet,
            client_security_group=self.security_group,
            name=f"{Stack.of(self).stack_name}-home",
            encryption_key=encryption_key,
            file_system_id=home_file_system_id,
        )
        self.roles = {
            COMPUTE: self._make_node_role("Role", "Training nodes"),
            LOGIN: self._make_node_role("LoginRole", "Login node of training jobs"),
        }
        self.cluster = self._make_cluster(limits.size_for(instances) or "", version, idle)
        login_type = login_instance_type or limits.login_instance_types[instance_type.architecture]
        self.login_node_group = self._make_login_node_group(login_type, limits.login_nodes)
        profile = self._make_instance_profile("InstanceProfile", self.roles[COMPUTE])
        self.compute_node_groups = [self._make_compute_node_group(group, profile) for group in self.node_groups]
        self.queue = pcs.CfnQueue(
            self,
            "Queue",
            cluster_id=self.cluster.attr_id,
            name=_QUEUE,
            compute_node_group_configurations=[
                pcs.CfnQueue.ComputeNodeGroupConfigurationProperty(compute_node_group_id=group.attr_id)
                for group in self.compute_node_groups
            ],
        )
        self._describe_use(idle)

    @classmethod
    def further_addresses(cls) -> int:
        """Return the addresses of login node, mount target of /home and the service's own interfaces."""
        limits = catalog.pcs()
        return limits.login_nodes + 1 + limits.network_interfaces_maximum

    def _make_node_role(self, id: str, description: str) -> iam.Role:
        role = self._make_role(id, description, path=_ROLE_PATH)
        # On every resource, as the PCS guide's own instance profile has it: whether a narrower one registers nodes is
        # not documented, and a node that cannot register never runs a job.
        role.add_to_policy(iam.PolicyStatement(actions=["pcs:RegisterComputeNodeGroupInstance"], resources=["*"]))
        acknowledge(role, rule="IAM5[Resource::*]", reason="Registering with AWS PCS, as in its guide.")
        return role

    def _make_instance_profile(self, id: str, role: iam.Role) -> iam.CfnInstanceProfile:
        return iam.CfnInstanceProfile(self, id, roles=[role.role_name], path=_ROLE_PATH)

    def _make_cluster(self, size: str, version: str, idle_seconds: int) -> pcs.CfnCluster:
        properties = pcs.CfnCluster
        cluster = properties(
            self,
            # No name of its own: CloudFormation refuses to replace a resource that has one, and a larger size replaces.
            "Cluster",
            size=size,
            scheduler=properties.SchedulerProperty(type="SLURM", version=version),
            networking=properties.NetworkingProperty(
                subnet_ids=[self.subnet.subnet_id], security_group_ids=[self.security_group.security_group_id]
            ),
            slurm_configuration=properties.SlurmConfigurationProperty(
                accounting=properties.AccountingProperty(mode="STANDARD"),
                scale_down_idle_time_in_seconds=idle_seconds,
                slurm_custom_settings=[
                    # Slurm runs it as root on a node before a job's first step there, and drains a node where it fails.
                    properties.SlurmCustomSettingProperty(parameter_name="Prolog", parameter_value=_PROLOG)
                ],
            ),
        )
        cluster.node.add_dependency(self.rules)
        return cluster

    def _make_login_node_group(self, instance_type: str, nodes: int) -> pcs.CfnComputeNodeGroup:
        template = self._make_launch_template(
            "LoginLaunchTemplate",
            name_tag=node_name(self, "login"),
            instance_type=instance_type,
            network_interfaces=[PLAIN_INTERFACE],
            user_data=multipart([self.home.mount_commands(seed=True), self._commands(LOGIN, self._reservation_ids)]),
        )
        # One CPU instance waits for no accelerator, so the stack does not either.
        return self._make_node_group(
            "LoginNodeGroup",
            name=f"login-{group_name(instance_type)}",
            template=template,
            instance_type=instance_type,
            minimum=nodes,
            maximum=nodes,
            profile=self._make_instance_profile("LoginInstanceProfile", self.roles[LOGIN]),
        )

    def _make_compute_node_group(self, group: NodeGroup, profile: iam.CfnInstanceProfile) -> pcs.CfnComputeNodeGroup:
        suffix = "" if group.reservation_id is None else group.reservation_id.removeprefix("cr-")
        commands = self._commands(COMPUTE, [group.reservation_id] if group.reservation_id else [])
        template = self._make_launch_template(
            f"LaunchTemplate{suffix}",
            name_tag=node_name(self, "node"),
            instance_type=self.instance_type.name,
            network_interfaces=self.instance_type.network_interfaces(several_addresses=self.several_addresses),
            market_type="capacity-block" if self.purchase == "capacity-block" else None,
            reservation_id=group.reservation_id,
            user_data=multipart(
                [_prolog_commands(gated=bool(commands)), self.home.mount_commands(seed=False), commands]
            ),
        )
        return self._make_node_group(
            f"NodeGroup{suffix}",
            name=group.name,
            template=template,
            instance_type=self.instance_type.name,
            minimum=0,
            maximum=group.instances,
            profile=profile,
            purchase_option=_PURCHASE_OPTION[self.purchase],
        )

    def _make_launch_template(
        self,
        id: str,
        *,
        name_tag: str,
        instance_type: str,
        network_interfaces: Sequence[catalog.NetworkInterface],
        user_data: str | None,
        market_type: str | None = None,
        reservation_id: str | None = None,
    ) -> ec2.CfnLaunchTemplate:
        placed = self.placement_group is not None and instance_type == self.instance_type.name
        return make_launch_template(
            self,
            id,
            name_tag=name_tag,
            network_interfaces=network_interfaces,
            security_groups=self.node_security_groups,
            root_device_name=images.root_device_name(self._image_parameter),
            root_volume_gib=self.root_volume_gib,
            # AWS PCS takes the type from the node group, but for a Capacity Block it must stand here as well.
            instance_type=instance_type if market_type == "capacity-block" else None,
            market_type=market_type,
            reservation_id=reservation_id,
            placement_group_name=self.placement_group.ref if self.placement_group and placed else None,
            user_data=user_data,
        )

    def _make_node_group(
        self,
        id: str,
        *,
        name: str,
        template: ec2.CfnLaunchTemplate,
        instance_type: str,
        minimum: int,
        maximum: int,
        profile: iam.CfnInstanceProfile,
        purchase_option: str | None = None,
    ) -> pcs.CfnComputeNodeGroup:
        properties = pcs.CfnComputeNodeGroup
        group = properties(
            self,
            id,
            cluster_id=self.cluster.attr_id,
            name=name,
            ami_id=self._image_id,
            custom_launch_template=properties.CustomLaunchTemplateProperty(
                template_id=template.ref, version=template.attr_latest_version_number
            ),
            iam_instance_profile_arn=profile.attr_arn,
            instance_configs=[properties.InstanceConfigProperty(instance_type=instance_type)],
            purchase_option=purchase_option,
            scaling_configuration=properties.ScalingConfigurationProperty(
                min_instance_count=minimum, max_instance_count=maximum
            ),
            subnet_ids=[self.subnet.subnet_id],
        )
        group.node.add_dependency(self.home)
        self._add_starter(group)
        return group

    def _describe_use(self, idle_seconds: int) -> None:
        region, login = Stack.of(self).region, self.login_node_group.attr_id
        user = images.user_name(self._image_parameter)
        # As the image's user, whose id is the same on every node: a job of another would not find itself there.
        self.start_session_command: str = (
            f"aws ssm start-session --region {region} --target $(aws ec2 describe-instances --region {region}"
            f" --filters Name=tag:aws:pcs:compute-node-group-id,Values={login} Name=instance-state-name,Values=running"
            " --query 'Reservations[0].Instances[0].InstanceId' --output text)"
            f" --document-name AWS-StartInteractiveCommand --parameters 'command=\"sudo -iu {user}\"'"
        )
        self.start_nodes_command: str = f"sbatch --partition={_QUEUE} --nodes={self.instances} --exclusive JOB.sh"
        self.start_nodes_description: str = (
            f"On the login node: a job starts (and bills) its nodes, which end after {idle_seconds} s without one"
        )
        self.outputs = {
            "ClusterId": (self.cluster.attr_id, "AWS PCS"),
            "HomeFileSystemId": (
                self.home.file_system_id,
                "/home; stays when the stack goes (docs/cluster.md); -c home_file_system_id= brings it back",
            ),
        }


def _prolog_commands(*, gated: bool) -> list[str]:
    """Return commands that write Slurm's prolog: no job runs on a node without /home, or that is not ready.

    Parameters
    ----------
    gated
        Whether the boot commands install the readiness gate: then a node that lacks it is not ready either.
    """
    gate = f"exec {_READINESS_GATE}" if gated else f"[ ! -x {_READINESS_GATE} ] || exec {_READINESS_GATE}"
    return [
        "set -euo pipefail",
        f"cat > {_PROLOG} <<'PROLOG'",
        "#!/bin/bash",
        'mountpoint -q /home || { logger -t training-storage "prolog: /home is not mounted"; exit 1; }',
        gate,
        "PROLOG",
        f"chmod 755 {_PROLOG}",
    ]
