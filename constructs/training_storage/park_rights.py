"""What park must know of a cluster and may do to it, by engine."""

from __future__ import annotations

from typing import Any

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam

from training_storage.acknowledgements import acknowledge_wildcards
from training_storage.gpu_cluster import AwsPcsCluster, Ec2AutoScalingCluster, GpuCluster
from training_storage.planning import catalog
from training_storage.validation import ConstructError

#: Tags by which the services mark the instances that they start.
_PCS_TAG, _AUTO_SCALING_TAG = "aws:pcs:compute-node-group-id", "aws:autoscaling:groupName"
#: What AWS PCS asks of whoever changes a node group (AWS PCS guide, minimum permissions for a service administrator).
_PCS_READS = (
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplateVersions",
    "ec2:DescribeLaunchTemplates",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
    "iam:ListInstanceProfiles",
)


def cluster_description(cluster: GpuCluster) -> dict[str, Any]:
    """Return engine and node groups with the limits that the template gives them; login nodes are marked.

    Raises
    ------
    ConstructError
        For a cluster that is of none of the library's engines.
    """
    if isinstance(cluster, AwsPcsCluster):
        nodes = catalog.pcs().login_nodes
        compute = zip(cluster.compute_node_groups, cluster.node_groups, strict=True)
        return {
            "engine": cluster.engine,
            "cluster_id": cluster.cluster.attr_id,
            "tag": _PCS_TAG,
            "groups": [
                *(_group(made.attr_id, maximum=planned.instances) for made, planned in compute),
                _group(cluster.login_node_group.attr_id, minimum=nodes, maximum=nodes, login=True),
            ],
        }
    if isinstance(cluster, Ec2AutoScalingCluster):
        return {
            "engine": cluster.engine,
            "cluster_id": "",
            "tag": _AUTO_SCALING_TAG,
            "groups": [_group(cluster.auto_scaling_group.ref, maximum=cluster.instances)],
        }
    raise ConstructError(
        f"cluster must be an AwsPcsCluster or an Ec2AutoScalingCluster, got: a {type(cluster).__name__}; park does not"
        " know how to stop others"
    )


def allow_cluster(role: iam.IRole, cluster: GpuCluster) -> None:
    """Let `role` stop the nodes of `cluster`, and let it start nodes again."""
    description = cluster_description(cluster)
    grant = role.add_to_principal_policy
    instances = Stack.of(cluster).format_arn(service="ec2", resource="instance", resource_name="*")
    grant(
        iam.PolicyStatement(
            sid="EndNodes",
            actions=["ec2:TerminateInstances"],
            resources=[instances],
            conditions={
                "StringEquals": {
                    f"aws:ResourceTag/{description['tag']}": [group["id"] for group in description["groups"]]
                }
            },
        )
    )
    acknowledge_wildcards(role, resources=[instances], reason="Only instances with the tag of the cluster's groups.")
    reads = ["ec2:DescribeInstances"]
    if isinstance(cluster, AwsPcsCluster):
        _allow_pcs(role, cluster)
        reads += _PCS_READS
    elif isinstance(cluster, Ec2AutoScalingCluster):
        group = Stack.of(cluster).format_arn(
            service="autoscaling",
            resource="autoScalingGroup",
            resource_name=f"*:autoScalingGroupName/{cluster.auto_scaling_group.ref}",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        grant(iam.PolicyStatement(sid="NodeLimits", actions=["autoscaling:UpdateAutoScalingGroup"], resources=[group]))
        acknowledge_wildcards(role, resources=[group], reason="The ARN of a group holds an id that nothing tells.")
    grant(iam.PolicyStatement(sid="Describe", actions=reads, resources=["*"]))
    acknowledge_wildcards(role, resources=["*"], reason="Describe and List actions take no resource.")


def _group(identifier: str, *, maximum: int, minimum: int = 0, login: bool = False) -> dict[str, Any]:
    return {"id": identifier, "minimum": minimum, "maximum": maximum, "login": login}


def _allow_pcs(role: iam.IRole, cluster: AwsPcsCluster) -> None:
    """Allow a change of the node groups' limits, with what AWS PCS checks that its caller may do.

    It starts nodes itself; its guide asks for these rights all the same. They reach the cluster's own launch templates
    and roles, and nothing else.
    """
    stack = Stack.of(cluster)
    groups = [group.attr_arn for group in (*cluster.compute_node_groups, cluster.login_node_group)]
    found = cluster.node.find_all()
    templates = [
        stack.format_arn(service="ec2", resource="launch-template", resource_name=child.ref)
        for child in found
        if isinstance(child, ec2.CfnLaunchTemplate)
    ]
    profiles = [child.attr_arn for child in found if isinstance(child, iam.CfnInstanceProfile)]
    fixed = [
        stack.format_arn(service="ec2", resource=kind, resource_name="*") for kind in ("key-pair", "security-group")
    ]
    images = stack.format_arn(service="ec2", account="", resource="image", resource_name="*")
    subnet = stack.format_arn(service="ec2", resource="subnet", resource_name=cluster.subnet.subnet_id)
    started = ["ec2:CreateFleet", "ec2:RunInstances"]
    template_only = {"ArnEquals": {"ec2:LaunchTemplate": templates}}
    made = [
        stack.format_arn(service="ec2", resource=kind, resource_name="*")
        for kind in ("fleet", "instance", "network-interface", "volume")
    ]
    grant = role.add_to_principal_policy
    grant(
        iam.PolicyStatement(
            sid="NodeLimits",
            actions=["pcs:GetComputeNodeGroup", "pcs:UpdateComputeNodeGroup"],
            resources=[cluster.cluster.attr_arn, *groups],
        )
    )
    grant(
        iam.PolicyStatement(
            sid="PcsStartsNodes",
            actions=started,
            resources=[*made, *templates, images],
            conditions=template_only,
        )
    )
    grant(iam.PolicyStatement(sid="PcsStartsNodesHere", actions=started, resources=[subnet], conditions=template_only))
    grant(
        iam.PolicyStatement(
            # Without it a call may name others than the template does (EC2 guide, permissions for launch templates).
            # Image, subnet and type are no part of it: AWS PCS gives them itself, from the node group.
            sid="PcsStartsNodesAsTheTemplateSays",
            actions=["ec2:RunInstances"],
            resources=fixed,
            conditions={**template_only, "Bool": {"ec2:IsLaunchTemplateResource": "true"}},
        )
    )
    acknowledge_wildcards(
        role, resources=[*fixed, images], reason="Only with the cluster's launch templates, which name them."
    )
    grant(
        iam.PolicyStatement(
            sid="PcsTagsNodes",
            actions=["ec2:CreateTags"],
            resources=made,
            conditions={"StringEquals": {"ec2:CreateAction": ["CreateFleet", "RunInstances"]}},
        )
    )
    acknowledge_wildcards(role, resources=made, reason="Only at creation; what is created has no id before.")
    grant(iam.PolicyStatement(sid="PcsProfiles", actions=["iam:GetInstanceProfile"], resources=profiles))
    grant(
        iam.PolicyStatement(
            sid="PcsRoles",
            actions=["iam:PassRole"],
            resources=[node_role.role_arn for node_role in cluster.roles.values()],
            conditions={"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
        )
    )
