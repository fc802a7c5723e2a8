"""What every engine offers, whatever starts the nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from training_storage.acknowledgements import acknowledge
from training_storage.gpu_cluster.capacity import check_capacity, node_groups
from training_storage.planning.engines import Nodes, check_engine
from training_storage.planning.errors import InvalidJobError
from training_storage.security_group_rules import SecurityGroupRules
from training_storage.validation import ConstructError, region_of, require_integer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aws_cdk import aws_kms as kms
    from constructs import IDependable

    from training_storage.gpu_cluster.home_file_system import HomeFileSystem
    from training_storage.planning.catalog import InstanceType

__all__ = ["COMPUTE", "LOGIN", "BootCommands", "GpuCluster"]

#: The roles of nodes: those with accelerators, and the one that people log in to.
COMPUTE, LOGIN = "compute", "login"

# Systems Manager user guide, getting-started-create-iam-instance-profile: what a session needs, where neither a key of
# one's own nor a log bucket is set for sessions. AWS's managed policy lets a node read every parameter besides.
_SESSION_MANAGER_ACTIONS = (
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)


class BootCommands(Protocol):
    """What gives the shell commands of nodes; `NodeKit.commands` is one."""

    def __call__(self, *, role: str, capacity_reservation_ids: Sequence[str] = ()) -> Sequence[str]:
        """Return the commands for nodes of `role` that start in these Capacity Blocks; the login node's are all."""


class GpuCluster(Construct):
    """A cluster that stands without waiting for capacity: no accelerator runs until somebody asks for one.

    Depend on the construct to wait for all of it; let its nodes wait for what they need with `nodes_wait_for`.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    vpc, subnet
        The network; one private subnet, because a training job stays in one zone.
    instance_type
        A type of the catalog, with its network interfaces.
    instances
        The most nodes with accelerators that may run.
    client_security_groups
        Groups that every node attaches besides the cluster's own, such as `LustreFileSystem.client_security_group`.
    purchase
        on-demand, spot or capacity-block.
    capacity_reservation_ids
        On-demand reservations or Capacity Blocks to start in; needed for capacity-block. They are taken to be of one
        size.
    ami_parameter
        SSM parameter that holds the AMI id; the engine's own image for the type's accelerator if none is given. It is
        read when the stack is deployed. Root device and user are told by the system in the name: /dev/sda1 and ubuntu
        for one with "ubuntu" in it, else /dev/xvda and ec2-user.
    several_addresses
        Plain ENA interfaces on further network cards, for S3 traffic beyond the 100 Gbps of one address
        (`network_path=ena-multi-ip`). Each takes an address of the subnet.
    boot_commands
        Gives shell commands that run at first boot, before the node takes work: called for each group of nodes with its
        `role` ("compute", and "login" where the engine has one) and its `capacity_reservation_ids`, the Capacity Blocks
        that the group starts in (for the login node all of them; none for other ways of purchase).
    encryption_key
        KMS key for what the engine stores itself, such as /home; an AWS-managed one if none is given. It must outlive
        the cluster.
    home_file_system_id
        An EFS file system that an earlier cluster left, to be /home again; only for engines with a /home.
    slurm_version
        Version of Slurm; if none is given, the newest that the engine's image is known to have; only for engines that
        run Slurm.
    root_volume_gib
        Size of a node's root volume, encrypted with the aws/ebs key.

    Attributes
    ----------
    engine
        Its name, as in `-c engine=`.
    node_apis
        What the nodes call besides S3, by the name of the API's endpoint: without a way out each needs an interface
        endpoint.
    roles
        What nodes of each role may do: nothing but what the engine needs, Session Manager, and what is granted.
    security_group
        All traffic between nodes by group id, as EFA demands; any traffic out.
    home
        The shared /home; None for an engine without one.
    start_session_command
        A command line that opens a shell, on the login node where there is one.
    start_nodes_command, start_nodes_description
        A command line that starts nodes, and what it does.
    outputs
        Further outputs of a stack: name to (value, description).

    Raises
    ------
    ConstructError
        For what the engine cannot do in the stack's Region, zone or size, naming the engines that can; and for a way
        of purchase that does not fit.
    """

    engine: ClassVar[str]
    node_apis: ClassVar[tuple[str, ...]]
    node_roles: ClassVar[tuple[str, ...]]
    has_home: ClassVar[bool]
    runs_slurm: ClassVar[bool]
    roles: Mapping[str, iam.Role]
    home: HomeFileSystem | None = None
    start_session_command: str
    start_nodes_command: str
    start_nodes_description: str
    outputs: Mapping[str, tuple[str, str]]

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
        require_integer(instances, what="instances", minimum=1)
        require_integer(root_volume_gib, what="root_volume_gib", minimum=1)
        check_capacity(
            instances=instances,
            instance_type=instance_type,
            purchase=purchase,
            capacity_reservation_ids=capacity_reservation_ids,
        )
        if home_file_system_id is not None and not self.has_home:
            raise ConstructError(
                f"home_file_system_id must be left out for engine {self.engine}, which has no /home,"
                f" got: {home_file_system_id!r}"
            )
        if slurm_version is not None and not self.runs_slurm:
            raise ConstructError(
                f"slurm_version must be left out for engine {self.engine}, which runs no Slurm, got: {slurm_version!r}"
            )
        region = region_of(scope)
        try:
            check_engine(
                self.engine,
                Nodes(
                    instances=instances,
                    instance_type=instance_type,
                    region=region.name if region else None,
                    ami_parameter=ami_parameter,
                ),
            )
        except InvalidJobError as error:
            raise ConstructError(str(error)) from None
        super().__init__(scope, id)
        self.vpc = vpc
        self.subnet = subnet
        self.instance_type = instance_type
        self.instances = instances
        self.purchase = purchase
        self.ami_parameter = ami_parameter
        self.several_addresses = several_addresses
        self.boot_commands = boot_commands
        self.encryption_key = encryption_key
        self.home_file_system_id = home_file_system_id
        self.root_volume_gib = root_volume_gib
        self.outputs = {}
        self.node_groups = node_groups(
            instances=instances, instance_type=instance_type, capacity_reservation_ids=capacity_reservation_ids
        )
        self._starters: list[Construct] = []

        self.security_group: ec2.SecurityGroup = ec2.SecurityGroup(
            self, "SecurityGroup", vpc=vpc, allow_all_outbound=True, description="Training nodes"
        )
        self.rules = SecurityGroupRules(self, "Rules", tcp_ports=None, description="Between training nodes (EFA)")
        self.rules.allow_both_ways("Nodes", group=self.security_group, peer=self.security_group)
        self.node_security_groups: tuple[ec2.ISecurityGroup, ...] = (self.security_group, *client_security_groups)
        self.placement_group = self._make_placement_group()

    @property
    def role(self) -> iam.Role:
        """The role of nodes with accelerators."""
        return self.roles[COMPUTE]

    @classmethod
    def further_addresses(cls) -> int:
        """Return the addresses of the subnet that the engine takes beside those of nodes with accelerators."""
        return 0

    def nodes_wait_for(self, *dependencies: IDependable) -> None:
        """Start no node before `dependencies` stand; the rest of the cluster does not wait."""
        for starter in self._starters:
            starter.node.add_dependency(*dependencies)

    def _commands(self, role: str, reservation_ids: Sequence[str]) -> Sequence[str]:
        """Return the boot commands of nodes of `role` that start in `reservation_ids`."""
        if self.boot_commands is None:
            return ()
        # Only a Capacity Block ends by itself; of another reservation a node has nothing to say.
        blocks = reservation_ids if self.purchase == "capacity-block" else ()
        return self.boot_commands(role=role, capacity_reservation_ids=tuple(blocks))

    def _add_starter(self, starter: Construct) -> None:
        """Note a resource that starts nodes: it waits for the rules of the nodes' groups, and for every grant.

        Nodes that start before their grants fail in ways that look like storage faults.
        """
        self._starters.append(starter)
        starter.node.add_dependency(self.rules, *self.roles.values())

    def _make_role(self, id: str, description: str, *, path: str | None = None) -> iam.Role:
        role = iam.Role(
            self,
            id,
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            description=description,
            path=path,
        )
        role.add_to_policy(iam.PolicyStatement(actions=list(_SESSION_MANAGER_ACTIONS), resources=["*"]))
        acknowledge(
            role,
            rule="IAM5[Resource::*]",
            reason="Session Manager's own channels, as in its guide: four of the five actions take no resource.",
        )
        return role

    def _make_placement_group(self) -> ec2.CfnPlacementGroup | None:
        # Instances of a reservation or a block are where it is: a placement group of ours could only refuse them.
        if any(group.reservation_id for group in self.node_groups):
            return None
        return ec2.CfnPlacementGroup(self, "PlacementGroup", strategy="cluster")
