"""EC2 Auto Scaling as the engine, for those who bring their own scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from aws_cdk import Stack
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam

from training_storage.acknowledgements import acknowledge
from training_storage.gpu_cluster.base import GpuCluster
from training_storage.planning.catalog import images
from training_storage.security_group_rules import SecurityGroupRules
from training_storage.validation import ConstructError, require_match

if TYPE_CHECKING:
    from collections.abc import Sequence

    from constructs import Construct

    from training_storage.planning.catalog import InstanceType, NetworkInterface

__all__ = ["Ec2AutoScalingCluster"]

_SESSION_MANAGER_POLICY = "AmazonSSMManagedInstanceCore"
_RESERVATION_ID_PATTERN = r"cr-[0-9a-f]{8,17}"


class Ec2AutoScalingCluster(GpuCluster):
    """An Auto Scaling group of training nodes that starts at zero.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    vpc, subnet
        The network; one private subnet, because a cluster placement group lies in one zone.
    instance_type
        A type of the catalog, with its network interfaces.
    instances
        The most nodes that may run. Minimum and desired are 0: a stack that waited for accelerators would fail when
        there are none, and starting them is an act of its own.
    client_security_groups
        Groups that the nodes attach besides the cluster's own, such as `LustreFileSystem.client_security_group`.
    purchase
        on-demand, spot or capacity-block.
    capacity_reservation_ids
        Reservations or Capacity Blocks to start in; needed for capacity-block.
    ami_parameter
        SSM parameter that holds the AMI id; the AWS deep learning base image for the type's accelerator if none is
        given. It is read when the stack is deployed. The root device is told by the system in the name: /dev/sda1 for
        one with "ubuntu" in it, else /dev/xvda.
    several_addresses
        Plain ENA interfaces on further network cards, for S3 traffic beyond the 100 Gbps of one address
        (`network_path=ena-multi-ip`). Each takes an address of the subnet.
    root_volume_gib
        Size of the root volume, encrypted with the aws/ebs key: with a key of its own the group starts nothing
        unless the key also lets the Auto Scaling role use it.

    Raises
    ------
    ConstructError
        For a purchase option that does not fit the type or lacks its reservation.
    """

    engine: ClassVar[str] = "ec2"

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
        root_volume_gib: int = 200,
    ) -> None:
        for reservation in capacity_reservation_ids:
            require_match(
                reservation,
                _RESERVATION_ID_PATTERN,
                what="capacity_reservation_ids",
                allowed="ids such as cr-0123456789abcdef0",
            )
        if purchase == "capacity-block" and not capacity_reservation_ids:
            raise ConstructError(
                "capacity_reservation_ids must name the Capacity Blocks for purchase capacity-block, got: none;"
                " for example cr-0123456789abcdef0"
            )
        if purchase == "spot" and capacity_reservation_ids:
            raise ConstructError(
                f"capacity_reservation_ids must be empty for purchase spot, got: {', '.join(capacity_reservation_ids)};"
                " reservations serve on-demand and capacity-block"
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
        )
        self.security_group: ec2.SecurityGroup = ec2.SecurityGroup(
            self, "SecurityGroup", vpc=vpc, allow_all_outbound=True, description="Training nodes"
        )
        self._rules = SecurityGroupRules(self, "Rules", tcp_ports=None, description="Between training nodes (EFA)")
        self._rules.allow_both_ways("Nodes", group=self.security_group, peer=self.security_group)
        self.role: iam.Role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            description="Training nodes",
            managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name(_SESSION_MANAGER_POLICY)],
        )
        self._instance_profile = iam.CfnInstanceProfile(self, "InstanceProfile", roles=[self.role.role_name])
        self._placement_group = self._make_placement_group()
        self.launch_template = self._make_launch_template(root_volume_gib)
        self.auto_scaling_group = self._make_auto_scaling_group()
        acknowledge(
            self.role,
            rule=f"IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/{_SESSION_MANAGER_POLICY}]",
            reason="Session Manager's policy is AWS's own; it reaches nodes without keys or open ports.",
        )
        acknowledge(
            self.auto_scaling_group,
            rule="AS3",
            reason="Nodes come and go with the jobs of the caller's scheduler; a notice for each would be noise.",
        )
        self.auto_scaling_group.node.add_dependency(self._rules)
        # Nodes that start before their grants fail in ways that look like storage faults.
        self.auto_scaling_group.node.add_dependency(self.role)

        region = Stack.of(self).region
        group_name = self.auto_scaling_group.ref
        self.start_nodes_command: str = (
            f"aws autoscaling set-desired-capacity --region {region} --auto-scaling-group-name {group_name}"
            f" --desired-capacity {instances}"
        )
        self.start_session_command: str = (
            f"aws ssm start-session --region {region} --target $(aws autoscaling describe-auto-scaling-groups"
            f" --region {region} --auto-scaling-group-names {group_name}"
            " --query 'AutoScalingGroups[0].Instances[0].InstanceId' --output text)"
        )

    def _make_placement_group(self) -> ec2.CfnPlacementGroup | None:
        # A Capacity Block places its instances itself.
        if self.purchase == "capacity-block":
            return None
        return ec2.CfnPlacementGroup(self, "PlacementGroup", strategy="cluster")

    def _make_launch_template(self, root_volume_gib: int) -> ec2.CfnLaunchTemplate:
        properties = ec2.CfnLaunchTemplate
        parameter = self.ami_parameter or images.default_parameter(self.instance_type)
        return ec2.CfnLaunchTemplate(
            self,
            "LaunchTemplate",
            launch_template_data=properties.LaunchTemplateDataProperty(
                image_id=ec2.MachineImage.from_ssm_parameter(parameter).get_image(self).image_id,
                instance_type=self.instance_type.name,
                iam_instance_profile=properties.IamInstanceProfileProperty(arn=self._instance_profile.attr_arn),
                instance_market_options=self._market_options(),
                metadata_options=properties.MetadataOptionsProperty(
                    http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=1
                ),
                block_device_mappings=[
                    properties.BlockDeviceMappingProperty(
                        device_name=images.root_device_name(parameter),
                        ebs=properties.EbsProperty(
                            volume_size=root_volume_gib, volume_type="gp3", encrypted=True, delete_on_termination=True
                        ),
                    )
                ],
                network_interfaces=self._network_interfaces(),
                placement=properties.PlacementProperty(group_name=self._placement_group.ref)
                if self._placement_group
                else None,
                tag_specifications=[
                    properties.TagSpecificationProperty(
                        resource_type=kind, tags=[{"key": "Name", "value": f"{Stack.of(self).stack_name}-node"}]
                    )
                    for kind in ("instance", "volume")
                ],
            ),
        )

    def _market_options(self) -> ec2.CfnLaunchTemplate.InstanceMarketOptionsProperty | None:
        if self.purchase == "on-demand":
            return None
        return ec2.CfnLaunchTemplate.InstanceMarketOptionsProperty(market_type=self.purchase)

    def _network_interfaces(self) -> list[ec2.CfnLaunchTemplate.NetworkInterfaceProperty]:
        interfaces = self.instance_type.network_interfaces(several_addresses=self.several_addresses)
        # Groups belong on each interface: EC2 refuses a template that has them at the top level as well.
        groups = [group.security_group_id for group in (self.security_group, *self.client_security_groups)]

        def rendered(interface: NetworkInterface) -> ec2.CfnLaunchTemplate.NetworkInterfaceProperty:
            return ec2.CfnLaunchTemplate.NetworkInterfaceProperty(
                network_card_index=interface.network_card_index,
                device_index=interface.device_index,
                interface_type=interface.interface_type,
                groups=groups,
                delete_on_termination=True,
                # EC2 refuses the field beside a second interface; the subnet gives no public address anyway.
                associate_public_ip_address=False if len(interfaces) == 1 else None,
            )

        return [rendered(interface) for interface in interfaces]

    def _make_auto_scaling_group(self) -> autoscaling.CfnAutoScalingGroup:
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
            capacity_reservation_specification=self._reservation_specification(),
            tags=[
                properties.TagPropertyProperty(
                    key="Name", value=f"{Stack.of(self).stack_name}-node", propagate_at_launch=True
                )
            ],
        )

    def _reservation_specification(
        self,
    ) -> autoscaling.CfnAutoScalingGroup.CapacityReservationSpecificationProperty | None:
        if not self.capacity_reservation_ids:
            return None
        properties = autoscaling.CfnAutoScalingGroup
        return properties.CapacityReservationSpecificationProperty(
            capacity_reservation_preference="capacity-reservations-only",
            capacity_reservation_target=properties.CapacityReservationTargetProperty(
                capacity_reservation_ids=self.capacity_reservation_ids
            ),
        )
