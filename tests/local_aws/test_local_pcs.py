"""The API of AWS PCS sees what CloudFormation made, and scales it; nodes never run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.local_aws.conftest import Network, Stacks
    from training_storage.testing.local_aws import LocalAws

pytestmark = pytest.mark.local_aws

NAME = "local-pcs"


def resources(network: Network, *, most: int = 4) -> dict[str, Any]:
    return {
        "Cluster": {
            "Type": "AWS::PCS::Cluster",
            "Properties": {
                "Size": "SMALL",
                "Scheduler": {"Type": "SLURM", "Version": "25.05"},
                "Networking": {"SubnetIds": [network.subnet], "SecurityGroupIds": [network.open_group]},
            },
        },
        "Template": {
            "Type": "AWS::EC2::LaunchTemplate",
            "Properties": {"LaunchTemplateData": {"ImageId": "ami-0123456789abcdef0"}},
        },
        "Group": {
            "Type": "AWS::PCS::ComputeNodeGroup",
            "Properties": {
                "ClusterId": {"Fn::GetAtt": ["Cluster", "Id"]},
                "Name": "p5-48xlarge",
                "CustomLaunchTemplate": {"TemplateId": {"Ref": "Template"}, "Version": "1"},
                "IamInstanceProfileArn": "arn:aws:iam::000000000000:instance-profile/aws-pcs/nodes",
                "InstanceConfigs": [{"InstanceType": "p5.48xlarge"}],
                "ScalingConfiguration": {"MinInstanceCount": 0, "MaxInstanceCount": most},
                "SubnetIds": [network.subnet],
            },
        },
    }


def ours(pcs: Any) -> list[dict[str, Any]]:
    """The clusters of this file's stack: other tests share the local AWS."""
    return [cluster for cluster in pcs.list_clusters()["clusters"] if cluster["name"].startswith(NAME)]


def test_clusters_and_node_groups_are_read_scaled_and_gone_with_their_stack(
    local_aws: LocalAws, network: Network, stacks: Stacks
) -> None:
    pcs = local_aws.client("pcs")
    assert ours(pcs) == []
    stacks.create(NAME, resources(network), Outputs={"Id": {"Value": {"Fn::GetAtt": ["Cluster", "Id"]}}})
    (summary,) = ours(pcs)
    identifier = summary["id"]
    assert identifier == stacks.outputs(NAME)["Id"]
    assert summary["arn"] == stacks.resource(NAME, "Cluster")
    cluster = pcs.get_cluster(clusterIdentifier=identifier)["cluster"]
    assert (cluster["status"], cluster["size"], cluster["scheduler"]["version"]) == ("ACTIVE", "SMALL", "25.05")

    (row,) = pcs.list_compute_node_groups(clusterIdentifier=identifier)["computeNodeGroups"]
    group = {"clusterIdentifier": identifier, "computeNodeGroupIdentifier": row["id"]}
    found = pcs.get_compute_node_group(**group)["computeNodeGroup"]
    assert found["scalingConfiguration"] == {"minInstanceCount": 0, "maxInstanceCount": 4}
    assert found["instanceConfigs"] == [{"instanceType": "p5.48xlarge"}]
    none = {"minInstanceCount": 0, "maxInstanceCount": 0}
    pcs.update_compute_node_group(**group, scalingConfiguration=none)
    assert pcs.get_compute_node_group(**group)["computeNodeGroup"]["scalingConfiguration"] == none

    stacks.update(NAME, resources(network, most=8))
    assert pcs.get_compute_node_group(**group)["computeNodeGroup"]["scalingConfiguration"]["maxInstanceCount"] == 8
    assert stacks.delete(NAME)["StackStatus"] == "DELETE_COMPLETE"
    assert ours(pcs) == []


def test_what_is_not_there_or_cannot_be_is_refused(local_aws: LocalAws, network: Network, stacks: Stacks) -> None:
    pcs = local_aws.client("pcs")
    with pytest.raises(pcs.exceptions.ResourceNotFoundException, match="doesn't exist"):
        pcs.get_cluster(clusterIdentifier="pcs_nothing123")
    stacks.create(NAME, resources(network))
    identifier = ours(pcs)[0]["id"]
    with pytest.raises(pcs.exceptions.ResourceNotFoundException):
        pcs.get_compute_node_group(clusterIdentifier=identifier, computeNodeGroupIdentifier="pcs_nothing123")
    with pytest.raises(pcs.exceptions.ValidationException):
        pcs.update_compute_node_group(
            clusterIdentifier=identifier,
            computeNodeGroupIdentifier="p5-48xlarge",
            scalingConfiguration={"minInstanceCount": 2, "maxInstanceCount": 1},
        )
    stacks.delete(NAME)


def test_clusters_of_another_region_are_not_seen(local_aws: LocalAws, network: Network, stacks: Stacks) -> None:
    stacks.create(NAME, resources(network))
    assert ours(local_aws.client("pcs")) != []
    assert ours(local_aws.client("pcs", region_name="us-west-2")) == []
    stacks.delete(NAME)
