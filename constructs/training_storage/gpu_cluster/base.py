"""What every engine offers, whatever starts the nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from constructs import Construct

from training_storage.validation import require_integer, require_one_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aws_cdk import aws_ec2 as ec2
    from aws_cdk import aws_iam as iam

    from training_storage.planning.catalog import InstanceType

__all__ = ["GpuCluster"]


class GpuCluster(Construct):
    """A cluster that stands without waiting for capacity: no node runs until somebody starts one.

    Attributes
    ----------
    engine
        Its name, as in `-c engine=`.
    role
        What the nodes may do: nothing but what the tiers grant, and Session Manager.
    security_group
        All traffic between nodes by group id, as EFA demands; any traffic out.
    start_session_command
        A command line that opens a shell on the first running node.
    start_nodes_command
        A command line that starts nodes.
    """

    engine: ClassVar[str]
    role: iam.IRole
    security_group: ec2.ISecurityGroup
    start_session_command: str
    start_nodes_command: str

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
    ) -> None:
        """Take what every engine needs; `Ec2AutoScalingCluster` documents each parameter."""
        require_integer(instances, what="instances", minimum=1)
        require_one_of(purchase, instance_type.purchase, what=f"purchase for {instance_type.name}")
        super().__init__(scope, id)
        self.vpc = vpc
        self.subnet = subnet
        self.instance_type = instance_type
        self.instances = instances
        self.client_security_groups = list(client_security_groups)
        self.purchase = purchase
        self.capacity_reservation_ids = list(capacity_reservation_ids)
        self.ami_parameter = ami_parameter
        self.several_addresses = several_addresses
