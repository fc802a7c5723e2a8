"""What every engine's nodes start from: interfaces, volume, metadata options and market, in one launch template."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jsii
from aws_cdk import Fn, ITaggable, Stack, TagManager, TagType
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from training_storage.planning.catalog import NetworkInterface

if TYPE_CHECKING:
    from collections.abc import Sequence

_TEMPLATE = ec2.CfnLaunchTemplate
#: That of tags which a resource begins with: a Name that the app's `Tags` give wins.
_NAME_PRIORITY = 50
#: The one interface of an instance without EFA.
PLAIN_INTERFACE = NetworkInterface(network_card_index=0, device_index=0, interface_type="interface")


def make_launch_template(
    scope: Construct,
    id: str,
    *,
    name_tag: str,
    network_interfaces: Sequence[NetworkInterface],
    security_groups: Sequence[ec2.ISecurityGroup],
    root_device_name: str,
    root_volume_gib: int,
    image_id: str | None = None,
    instance_type: str | None = None,
    instance_profile_arn: str | None = None,
    market_type: str | None = None,
    reservation_id: str | None = None,
    placement_group_name: str | None = None,
    user_data: str | None = None,
) -> ec2.CfnLaunchTemplate:
    """Make a launch template; what is None is left to the engine.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    name_tag
        Name of instances and volumes in the console. They also get every tag that reaches `scope`: an engine passes
        on no tags of its own, and without them the bill knows no job.
    network_interfaces
        Layout of the type. The subnet is the engine's business.
    security_groups
        Put on every interface: EC2 refuses a template that has them at the top level as well.
    root_device_name, root_volume_gib
        The root volume, encrypted with the aws/ebs key: with a key of its own nothing starts unless the key also lets
        the role of the engine use it.
    image_id, instance_type, instance_profile_arn
        What starts, and as whom.
    market_type
        ``spot`` or ``capacity-block``.
    reservation_id
        Reservation or Capacity Block that is targeted directly: nothing starts beside it.
    placement_group_name
        A cluster placement group.
    user_data
        As text; it is encoded here.
    """
    template = _TEMPLATE(
        scope,
        id,
        launch_template_data=_TEMPLATE.LaunchTemplateDataProperty(
            image_id=image_id,
            instance_type=instance_type,
            iam_instance_profile=_TEMPLATE.IamInstanceProfileProperty(arn=instance_profile_arn)
            if instance_profile_arn
            else None,
            instance_market_options=_TEMPLATE.InstanceMarketOptionsProperty(market_type=market_type)
            if market_type
            else None,
            capacity_reservation_specification=_TEMPLATE.CapacityReservationSpecificationProperty(
                capacity_reservation_target=_TEMPLATE.CapacityReservationTargetProperty(
                    capacity_reservation_id=reservation_id
                )
            )
            if reservation_id
            else None,
            metadata_options=_TEMPLATE.MetadataOptionsProperty(
                http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=1
            ),
            block_device_mappings=[
                _TEMPLATE.BlockDeviceMappingProperty(
                    device_name=root_device_name,
                    ebs=_TEMPLATE.EbsProperty(
                        volume_size=root_volume_gib, volume_type="gp3", encrypted=True, delete_on_termination=True
                    ),
                )
            ],
            network_interfaces=_rendered(network_interfaces, security_groups),
            placement=_TEMPLATE.PlacementProperty(group_name=placement_group_name) if placement_group_name else None,
            user_data=Fn.base64(user_data) if user_data else None,
        ),
    )
    tags = _NodeTags(scope, f"{id}Tags").tags
    tags.set_tag("Name", name_tag, _NAME_PRIORITY)
    # As an override: the typed property takes no value that is only known when the app's tags are.
    template.add_property_override(
        "LaunchTemplateData.TagSpecifications",
        [{"ResourceType": kind, "Tags": tags.rendered_tags} for kind in ("instance", "volume")],
    )
    return template


@jsii.implements(ITaggable)
class _NodeTags(Construct):
    """Collects the tags that reach it; a launch template takes none for what it starts."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        self._tags = TagManager(TagType.KEY_VALUE, "AWS::EC2::LaunchTemplate")

    @property
    def tags(self) -> TagManager:
        """What CDK's `Tags` adds to."""
        return self._tags


def node_name(scope: Construct, role: str) -> str:
    """Return the Name tag of the nodes of `role`."""
    return f"{Stack.of(scope).stack_name}-{role}"


def _rendered(
    interfaces: Sequence[NetworkInterface], security_groups: Sequence[ec2.ISecurityGroup]
) -> list[ec2.CfnLaunchTemplate.NetworkInterfaceProperty]:
    groups = [group.security_group_id for group in security_groups]
    return [
        _TEMPLATE.NetworkInterfaceProperty(
            network_card_index=interface.network_card_index,
            device_index=interface.device_index,
            interface_type=interface.interface_type,
            groups=groups,
            delete_on_termination=True,
            # EC2 refuses the field beside a second interface; the subnet gives no public address anyway.
            associate_public_ip_address=False if len(interfaces) == 1 else None,
        )
        for interface in interfaces
    ]
