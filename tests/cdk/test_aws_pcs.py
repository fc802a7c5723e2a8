"""AWS PCS: a Slurm cluster that stands without accelerators, with a login node and a shared /home."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App, CfnResource, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms

from training_storage import AwsPcsCluster, ConstructError
from training_storage.planning import catalog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Synthesize = Callable[[Stack], Any]

BLOCKS = [f"cr-{number:017x}" for number in range(4)]
PCS_READY = "/aws/service/pcs/ami/dlami-base-ubuntu2404/x86_64/latest/ami-id"


def make(stack: Stack, vpc: ec2.Vpc, instance_type: str = "p5.48xlarge", **overrides: Any) -> AwsPcsCluster:
    return AwsPcsCluster(
        stack,
        "Cluster",
        vpc=vpc,
        subnet=vpc.private_subnets[0],
        instance_type=catalog.instance_type(instance_type),
        **({"instances": 256} | overrides),
    )


def node_groups(template: Any) -> dict[str, Any]:
    groups = template.of_type("AWS::PCS::ComputeNodeGroup").values()
    return {group["Properties"]["Name"]: group["Properties"] for group in groups}


def launch_data(template: Any, group: Any) -> Any:
    reference = group["CustomLaunchTemplate"]["TemplateId"]["Ref"]
    return template.by_id[reference]["Properties"]["LaunchTemplateData"]


def user_data(template: Any, group: Any) -> str:
    """The archive, with references to the file system replaced."""
    found = launch_data(template, group)["UserData"]["Fn::Base64"]
    parts = found["Fn::Join"][1] if isinstance(found, dict) else [found]
    return "".join(part if isinstance(part, str) else "fs-01234567" for part in parts)


def scripts(archive: str) -> list[str]:
    boundary = "--+AWS+CDK+User+Data+Separator=="
    parts = archive.split(f"{boundary}\n")[1:]
    return [part.split("\n\n", 1)[1].split(f"\n{boundary}--")[0] for part in parts]


@pytest.mark.parametrize(("instances", "size"), [(31, "SMALL"), (256, "MEDIUM"), (512, "LARGE"), (2047, "LARGE")])
def test_the_cluster_is_of_the_smallest_size_that_holds_nodes_and_login_node(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize, instances: int, size: str
) -> None:
    make(stack, vpc, instances=instances)
    assert resources(stack).one("AWS::PCS::Cluster")["Properties"]["Size"] == size


def test_slurm_keeps_accounts_and_ends_idle_nodes(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    make(stack, vpc)
    properties = resources(stack).one("AWS::PCS::Cluster")["Properties"]
    assert properties["Scheduler"] == {"Type": "SLURM", "Version": "25.11"}
    assert properties["SlurmConfiguration"]["Accounting"] == {"Mode": "STANDARD"}
    assert properties["SlurmConfiguration"]["ScaleDownIdleTimeInSeconds"] == 600
    # With a name of its own it could not be replaced by a larger one.
    assert "Name" not in properties


def test_no_stack_waits_for_accelerators_and_one_small_login_node_stands(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    make(stack, vpc)
    groups = node_groups(resources(stack))
    assert set(groups) == {"p5-48xlarge", "login-m7i-large"}
    assert groups["p5-48xlarge"]["ScalingConfiguration"] == {"MinInstanceCount": 0, "MaxInstanceCount": 256}
    assert groups["p5-48xlarge"]["InstanceConfigs"] == [{"InstanceType": "p5.48xlarge"}]
    assert groups["login-m7i-large"]["ScalingConfiguration"] == {"MinInstanceCount": 1, "MaxInstanceCount": 1}
    assert groups["login-m7i-large"]["InstanceConfigs"] == [{"InstanceType": "m7i.large"}]


@pytest.mark.parametrize("name", sorted(catalog.instance_types()))
def test_names_of_node_groups_are_what_pcs_takes(stack: Stack, vpc: ec2.Vpc, resources: Synthesize, name: str) -> None:
    kind = catalog.instance_type(name)
    options: dict[str, Any] = {"instances": 4, "purchase": kind.purchase[0], "ami_parameter": "/team/pcs-image"}
    if kind.purchase[0] == "capacity-block":
        options["capacity_reservation_ids"] = BLOCKS[:1]
    make(stack, vpc, name, **options)
    limits = catalog.pcs()
    for group in node_groups(resources(stack)):
        assert limits.name_characters_minimum <= len(group) <= limits.name_characters_maximum
        assert group.replace("-", "").isalnum()
        assert group[0].isalpha()


def test_programs_are_built_on_the_architecture_that_they_run_on(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    make(
        stack,
        vpc,
        "p6e-gb200.36xlarge",
        instances=18,
        purchase="capacity-block",
        capacity_reservation_ids=BLOCKS[:1],
    )
    template = resources(stack)
    assert "login-m6g-large" in node_groups(template)
    assert "/aws/service/pcs/ami/dlami-base-ubuntu2404/arm64/latest/ami-id" in json.dumps(template.template)


def test_one_queue_stands_over_all_node_groups_with_accelerators(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    make(stack, vpc, instances=192, purchase="capacity-block", capacity_reservation_ids=BLOCKS[:3])
    template = resources(stack)
    queue = template.one("AWS::PCS::Queue")["Properties"]
    behind = [c["ComputeNodeGroupId"]["Fn::GetAtt"][0] for c in queue["ComputeNodeGroupConfigurations"]]
    assert [template.by_id[identifier]["Properties"]["Name"] for identifier in behind] == BLOCKS[:3]


def test_three_capacity_blocks_serve_192_instances_with_a_node_group_each(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    make(stack, vpc, instances=192, purchase="capacity-block", capacity_reservation_ids=BLOCKS[:3])
    template = resources(stack)
    groups = node_groups(template)
    for block in BLOCKS[:3]:
        assert groups[block]["PurchaseOption"] == "CAPACITY_BLOCK"
        assert groups[block]["ScalingConfiguration"] == {"MinInstanceCount": 0, "MaxInstanceCount": 64}
        data = launch_data(template, groups[block])
        assert data["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
        assert data["InstanceType"] == "p5.48xlarge"
        target = data["CapacityReservationSpecification"]["CapacityReservationTarget"]
        assert target == {"CapacityReservationId": block}
        assert "Placement" not in data
    assert template.of_type("AWS::EC2::PlacementGroup") == {}
    # The login node is no part of a block.
    login = launch_data(template, groups["login-m7i-large"])
    assert not {"InstanceMarketOptions", "CapacityReservationSpecification", "Placement"} & set(login)
    assert "PurchaseOption" not in groups["login-m7i-large"]


def test_each_group_is_told_its_own_capacity_block_and_the_login_node_all(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    make(
        stack,
        vpc,
        instances=192,
        purchase="capacity-block",
        capacity_reservation_ids=BLOCKS[:3],
        boot_commands=lambda *, role, capacity_reservation_ids: [f"echo {role} {' '.join(capacity_reservation_ids)}"],
    )
    template = resources(stack)
    told = {
        name: scripts(user_data(template, group))[-1].splitlines()[-1] for name, group in node_groups(template).items()
    }
    assert told == {
        **{block: f"echo compute {block}" for block in BLOCKS[:3]},
        "login-m7i-large": f"echo login {' '.join(BLOCKS[:3])}",
    }


def test_nine_reservations_are_the_most_beside_the_login_nodes_group(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    make(stack, vpc, capacity_reservation_ids=[f"cr-{number:017x}" for number in range(9)])
    assert len(node_groups(resources(stack))) == catalog.pcs().node_groups_maximum == 10


def test_two_capacity_blocks_do_not_serve_256_instances(stack: Stack, vpc: ec2.Vpc) -> None:
    with pytest.raises(ConstructError, match=r"at least 4 Capacity Blocks for 256 instances \(64 per block\), got: 2"):
        make(stack, vpc, instances=256, purchase="capacity-block", capacity_reservation_ids=BLOCKS[:2])


def test_a_block_more_or_another_order_leaves_the_other_groups_as_they_are() -> None:
    def groups(ids: list[str]) -> dict[str, Any]:
        stack = Stack(App(), "Test", env=Environment(region="us-east-1"))
        vpc = ec2.Vpc(stack, "Vpc", max_azs=1)
        make(stack, vpc, instances=64 * len(ids), purchase="capacity-block", capacity_reservation_ids=ids)
        template = stack.node.root.synth().get_stack_by_name("Test").template  # type: ignore[attr-defined]
        return {i: r for i, r in template["Resources"].items() if r["Type"] == "AWS::PCS::ComputeNodeGroup"}

    few, many = groups(BLOCKS[:2]), groups([BLOCKS[3], BLOCKS[1], BLOCKS[0]])
    assert {identifier: many[identifier] for identifier in few} == few


def test_reservations_are_targeted_one_group_each_and_nothing_starts_beside_them(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    make(stack, vpc, instances=101, capacity_reservation_ids=BLOCKS[:2])
    template = resources(stack)
    groups = node_groups(template)
    sizes = [groups[block]["ScalingConfiguration"]["MaxInstanceCount"] for block in BLOCKS[:2]]
    assert sizes == [51, 50]
    data = launch_data(template, groups[BLOCKS[0]])
    assert data["CapacityReservationSpecification"]["CapacityReservationTarget"]["CapacityReservationId"] == BLOCKS[0]
    assert "InstanceMarketOptions" not in data
    assert groups[BLOCKS[0]]["PurchaseOption"] == "ONDEMAND"


def test_spot_is_the_groups_purchase_option_and_not_the_templates(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    make(stack, vpc, purchase="spot")
    template = resources(stack)
    group = node_groups(template)["p5-48xlarge"]
    assert group["PurchaseOption"] == "SPOT"
    assert "InstanceMarketOptions" not in launch_data(template, group)


def test_nodes_are_placed_together_and_the_login_node_is_not(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    make(stack, vpc)
    template = resources(stack)
    groups = node_groups(template)
    assert launch_data(template, groups["p5-48xlarge"])["Placement"]["GroupName"]["Ref"] in template.by_id
    assert "Placement" not in launch_data(template, groups["login-m7i-large"])


def test_p5_has_one_address_and_32_efa_interfaces_with_every_group_on_each(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    client_group = ec2.SecurityGroup(stack, "Client", vpc=vpc)
    make(stack, vpc, client_security_groups=[client_group])
    template = resources(stack)
    groups = node_groups(template)
    interfaces = launch_data(template, groups["p5-48xlarge"])["NetworkInterfaces"]
    layout = [(i["NetworkCardIndex"], i["DeviceIndex"], i["InterfaceType"]) for i in interfaces]
    assert layout == [(0, 0, "interface"), (0, 1, "efa-only"), *((card, 0, "efa-only") for card in range(1, 32))]
    login = launch_data(template, groups["login-m7i-large"])["NetworkInterfaces"]
    assert [(i["NetworkCardIndex"], i["DeviceIndex"], i["InterfaceType"]) for i in login] == [(0, 0, "interface")]
    # The login node too attaches the file system's client group: a researcher sees /fsx there.
    assert [i for i in (*interfaces, *login) if len(i["Groups"]) != 2] == []


def test_the_security_group_is_what_pcs_asks_for(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    make(stack, vpc)
    template = resources(stack)
    cluster = template.one("AWS::PCS::Cluster")
    (group,) = cluster["Properties"]["Networking"]["SecurityGroupIds"]
    ingress = [
        r["Properties"]
        for r in template.of_type("AWS::EC2::SecurityGroupIngress").values()
        if r["Properties"]["GroupId"] == group
    ]
    egress = [
        r["Properties"]
        for r in template.of_type("AWS::EC2::SecurityGroupEgress").values()
        if r["Properties"]["GroupId"] == group
    ]
    assert [(r["IpProtocol"], r["SourceSecurityGroupId"]) for r in ingress] == [("-1", group)]
    assert [(r["IpProtocol"], r["DestinationSecurityGroupId"]) for r in egress] == [("-1", group)]
    resource = template.by_id[group["Fn::GetAtt"][0]]["Properties"]
    assert [(r["CidrIp"], r["IpProtocol"]) for r in resource["SecurityGroupEgress"]] == [("0.0.0.0/0", "-1")]
    assert {
        *template.of_type("AWS::EC2::SecurityGroupEgress"),
    } <= set(cluster["DependsOn"])


def test_each_role_of_nodes_has_a_role_of_its_own_that_registers_and_is_reached_and_no_more(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    cluster = make(stack, vpc)
    assert set(cluster.roles) == {"compute", "login"}
    template = resources(stack)
    roles = template.of_type("AWS::IAM::Role")
    assert len(roles) == 2
    for role in roles.values():
        assert role["Properties"]["Path"] == "/aws-pcs/"
        assert "ManagedPolicyArns" not in role["Properties"]
    for profile in template.of_type("AWS::IAM::InstanceProfile").values():
        assert profile["Properties"]["Path"] == "/aws-pcs/"
        assert profile["Properties"]["Roles"][0]["Ref"] in roles
    granted = [
        "pcs:RegisterComputeNodeGroupInstance",
        "ssm:UpdateInstanceInformation",
        "ssmmessages:CreateControlChannel",
        "ssmmessages:CreateDataChannel",
        "ssmmessages:OpenControlChannel",
        "ssmmessages:OpenDataChannel",
    ]
    assert template.statements() == 2 * [{"Action": granted, "Effect": "Allow", "Resource": "*"}]
    used = {json.dumps(group["IamInstanceProfileArn"]) for group in node_groups(template).values()}
    assert len(used) == 2


def test_no_node_starts_before_grants_home_and_what_it_is_told_to_wait_for(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    cluster = make(stack, vpc)
    needed = CfnResource(stack, "Needed", type="AWS::CloudFormation::WaitConditionHandle")
    cluster.nodes_wait_for(needed)
    for role in cluster.roles.values():
        role.add_to_policy(iam.PolicyStatement(actions=["fsx:DescribeFileSystems"], resources=["*"]))
    template = resources(stack)
    for group in template.of_type("AWS::PCS::ComputeNodeGroup").values():
        assert {
            "Needed",
            *template.of_type("AWS::IAM::Policy"),
            *template.of_type("AWS::EFS::MountTarget"),
            *template.of_type("AWS::EC2::SecurityGroupIngress"),
        } <= set(group["DependsOn"])
    assert "Needed" not in template.one("AWS::PCS::Cluster")["DependsOn"]


def test_the_whole_cluster_can_wait_for_something(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    gate = CfnResource(stack, "Gate", type="AWS::CloudFormation::WaitConditionHandle")
    make(stack, vpc).node.add_dependency(gate)
    template = resources(stack)
    kinds = ("AWS::PCS::Cluster", "AWS::PCS::ComputeNodeGroup", "AWS::PCS::Queue", "AWS::EFS::MountTarget")
    for kind in kinds:
        for resource in template.of_type(kind).values():
            assert "Gate" in resource["DependsOn"]


def test_metadata_needs_a_token_and_volumes_are_encrypted_on_every_node(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    make(stack, vpc)
    for template in resources(stack).of_type("AWS::EC2::LaunchTemplate").values():
        data = template["Properties"]["LaunchTemplateData"]
        assert data["MetadataOptions"]["HttpTokens"] == "required"
        (device,) = data["BlockDeviceMappings"]
        assert (device["DeviceName"], device["Ebs"]["Encrypted"]) == ("/dev/sda1", True)
        # AWS PCS takes them from the node group.
        assert not {"ImageId", "InstanceType", "IamInstanceProfile"} & set(data)


def test_every_group_starts_from_the_pcs_ready_image_or_the_callers(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    make(stack, vpc)
    template = resources(stack)
    images = {json.dumps(group["AmiId"]) for group in node_groups(template).values()}
    assert len(images) == 1
    parameter = template.template["Parameters"][json.loads(images.pop())["Ref"]]
    assert parameter["Default"] == PCS_READY

    other = Stack(App(), "Other", env=Environment(region="us-east-1"))
    make(other, ec2.Vpc(other, "Vpc", max_azs=1), ami_parameter="/team/ubuntu-pcs")
    assert "/team/ubuntu-pcs" in json.dumps(resources(other).template["Parameters"])


@pytest.mark.parametrize(
    ("region", "options", "message"),
    [
        ("cn-north-1", {}, "engine must be ec2 here, got: 'pcs': AWS PCS is not in cn-north-1"),
        ("us-east-1", {"instances": 2048}, "engine must be ec2 here, got: 'pcs': AWS PCS has at most 2047 instances"),
        (
            "us-east-1",
            {"ami_parameter": "/aws/service/deeplearning/ami/x86_64/base/latest/ami-id"},
            "ami_parameter must name an image with the AWS PCS agent",
        ),
        ("us-east-1", {"slurm_version": "23.11"}, "slurm_version must be one of 24.11, 25.05, 25.11, 26.05, got"),
        ("us-east-1", {"idle_seconds": 0}, "idle_seconds must be a whole number from 1 to 10000000, got: 0"),
        ("us-east-1", {"home_file_system_id": "home"}, "home_file_system_id must be the id of an EFS file system"),
        (
            "us-east-1",
            {"capacity_reservation_ids": [f"cr-{number:017x}" for number in range(10)]},
            "capacity_reservation_ids must name at most 9 reservations for engine pcs, got: 10; .* 10 node groups",
        ),
        (
            "us-east-1",
            {"boot_commands": lambda *, role, **_: ["x" * 17_000] if role == "login" else []},
            "boot_commands must be at most 16384 bytes of user data, got: 1",
        ),
    ],
    ids=str,
)
def test_what_pcs_cannot_do_is_refused_with_what_can(region: str, options: dict[str, Any], message: str) -> None:
    stack = Stack(App(), "Test", env=Environment(region=region))
    with pytest.raises(ConstructError, match=message):
        make(stack, ec2.Vpc(stack, "Vpc", max_azs=1), **options)


def test_trainium_needs_an_image_of_the_callers(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    with pytest.raises(
        ConstructError, match="no PCS-ready image for Trainium is published; with one of your own, give"
    ):
        make(stack, vpc, "trn1.32xlarge")
    make(stack, vpc, "trn1.32xlarge", ami_parameter="/team/pcs-neuron")
    assert len(resources(stack).of_type("AWS::PCS::ComputeNodeGroup")) == 2


# User data


def test_user_data_is_a_mime_archive_of_scripts_that_bash_can_read(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    make(stack, vpc, boot_commands=lambda *, role, **_: [{"compute": "echo kit", "login": "echo login-kit"}[role]])
    template = resources(stack)
    groups = node_groups(template)
    for name, last in (("p5-48xlarge", "echo kit"), ("login-m7i-large", "echo login-kit")):
        archive = user_data(template, groups[name])
        head = 'Content-Type: multipart/mixed; boundary="+AWS+CDK+User+Data+Separator=="\nMIME-Version: 1.0\n\n'
        assert archive.startswith(head)
        found = scripts(archive)
        assert found[-1].splitlines() == ["#!/bin/bash", last]
        for script in found:
            subprocess.run(["/bin/bash", "-n"], input=script, text=True, check=True)


def run_script(script: str, folder: Path, commands: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a script of the user data with paths under `folder` and `commands` instead of the system's."""
    fakes = folder / "bin"
    fakes.mkdir(exist_ok=True)
    for name, body in commands.items():
        (fakes / name).write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        (fakes / name).chmod(0o755)
    (folder / "etc").mkdir(exist_ok=True)
    (folder / "etc" / "fstab").touch()
    for path in ("/home", "/run/", "/etc/fstab", "/usr/local/"):
        script = script.replace(path, f"{folder}{path}")
    return subprocess.run(
        ["/bin/bash"],
        input=script,
        text=True,
        check=False,
        capture_output=True,
        env={**os.environ, "PATH": f"{fakes}:{os.environ['PATH']}", "FOLDER": str(folder)},
    )


# A mount is a note of its own name; the file system is a folder that a mount point becomes a link to.
FAKE_MOUNTS = {
    "sleep": "exit 0",
    "mountpoint": '[ -L "$2" ]',
    "mount": 'echo "$*" >> "$FOLDER/mounts"; rm -rf "$FOLDER/under"; mv "${@: -1}" "$FOLDER/under";'
    ' ln -s "$FOLDER/efs" "${@: -1}"',
    "umount": 'rm "$1"; mkdir "$1"',
}


def test_the_login_node_takes_the_images_home_directories_over_once(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize, tmp_path: Path
) -> None:
    make(stack, vpc)
    template = resources(stack)
    script = scripts(user_data(template, node_groups(template)["login-m7i-large"]))[0]
    efs = tmp_path / "efs"
    (efs / "old").mkdir(parents=True)
    (efs / "old" / "notes").write_text("kept", encoding="utf-8")
    for name in ("ubuntu", "old"):
        (tmp_path / "home" / name).mkdir(parents=True)
        (tmp_path / "home" / name / "notes").write_text("image", encoding="utf-8")

    result = run_script(script, tmp_path, FAKE_MOUNTS)
    assert (result.returncode, result.stderr) == (0, "")
    assert (tmp_path / "home").resolve() == efs
    assert sorted(path.name for path in efs.iterdir()) == ["old", "ubuntu"]
    assert (efs / "old" / "notes").read_text(encoding="utf-8") == "kept"
    assert (efs / "ubuntu" / "notes").read_text(encoding="utf-8") == "image"
    fstab = (tmp_path / "etc" / "fstab").read_text(encoding="utf-8")
    assert fstab == f"fs-01234567:/ {tmp_path}/home efs _netdev,tls 0 0\n"

    # A second run, as after a reboot of the same disk, changes nothing.
    before = (tmp_path / "mounts").read_text(encoding="utf-8")
    assert run_script(script, tmp_path, FAKE_MOUNTS).returncode == 0
    assert (tmp_path / "mounts").read_text(encoding="utf-8") == before
    assert (tmp_path / "etc" / "fstab").read_text(encoding="utf-8") == fstab


def test_a_node_mounts_home_over_tls_as_soon_as_it_can_be_reached_and_says_if_it_cannot(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize, tmp_path: Path
) -> None:
    make(stack, vpc)
    template = resources(stack)
    script = scripts(user_data(template, node_groups(template)["p5-48xlarge"]))[1]
    (tmp_path / "home").mkdir()
    (tmp_path / "efs").mkdir()
    late = 'echo . >> "$FOLDER/tries"; [ "$(wc -l < "$FOLDER/tries")" -gt 3 ] || exit 32; ' + FAKE_MOUNTS["mount"]
    assert run_script(script, tmp_path, {**FAKE_MOUNTS, "mount": late}).returncode == 0
    mounts = (tmp_path / "mounts").read_text(encoding="utf-8")
    assert mounts == f"-t efs -o tls fs-01234567:/ {tmp_path}/home\n"

    (tmp_path / "home").unlink()
    (tmp_path / "home").mkdir()
    result = run_script(script, tmp_path, {**FAKE_MOUNTS, "mount": "exit 32"})
    assert result.returncode == 1
    assert "cannot mount fs-01234567:/ on" in result.stderr


@pytest.mark.parametrize(
    ("kit", "gate", "home", "passes"),
    [
        (False, None, True, True),
        (False, None, False, False),
        (True, None, True, False),
        (True, "exit 0", True, True),
        (True, "exit 1", True, False),
    ],
    ids=["plain", "no-home", "kit-not-installed", "ready", "not-ready"],
)
def test_slurms_prolog_lets_no_job_on_a_node_that_is_not_ready(
    stack: Stack,
    vpc: ec2.Vpc,
    resources: Synthesize,
    tmp_path: Path,
    *,
    kit: bool,
    gate: str | None,
    home: bool,
    passes: bool,
) -> None:
    make(stack, vpc, boot_commands=(lambda **_: ["echo kit"]) if kit else None)
    template = resources(stack)
    settings = template.one("AWS::PCS::Cluster")["Properties"]["SlurmConfiguration"]["SlurmCustomSettings"]
    assert settings == [{"ParameterName": "Prolog", "ParameterValue": "/usr/local/sbin/training-storage-prolog"}]
    script = scripts(user_data(template, node_groups(template)["p5-48xlarge"]))[0]
    fakes = {"mountpoint": "exit 0" if home else "exit 1", "logger": "exit 0"}
    for folder in ("bin", "sbin"):
        (tmp_path / "usr" / "local" / folder).mkdir(parents=True)
    assert run_script(script, tmp_path, fakes).returncode == 0
    if gate is not None:
        path = tmp_path / "usr" / "local" / "bin" / "training-storage-ready"
        path.write_text(f"#!/bin/bash\n{gate}\n", encoding="utf-8")
        path.chmod(0o755)
    prolog = subprocess.run(
        [str(tmp_path / "usr" / "local" / "sbin" / "training-storage-prolog")],
        check=False,
        capture_output=True,
        env={**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
    )
    assert (prolog.returncode == 0) == passes


# /home


def test_home_is_encrypted_elastic_backed_up_and_never_deleted_by_cloudformation(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    key = kms.Key(stack, "Key")
    make(stack, vpc, encryption_key=key)
    home = resources(stack).one("AWS::EFS::FileSystem")
    properties = home["Properties"]
    assert properties["Encrypted"] is True
    assert properties["KmsKeyId"] == stack.resolve(key.key_arn)
    assert properties["ThroughputMode"] == "elastic"
    assert properties["BackupPolicy"] == {"Status": "ENABLED"}
    assert home["DeletionPolicy"] == "RetainExceptOnCreate"
    assert home["UpdateReplacePolicy"] == "Retain"


def test_home_is_open_to_the_clusters_nodes_alone_and_over_tls_alone(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    cluster = make(stack, vpc)
    template = resources(stack)
    target = template.one("AWS::EFS::MountTarget")["Properties"]
    assert target["SecurityGroups"] == [stack.resolve(cluster.home.security_group.security_group_id)]
    ingress = [
        r["Properties"]
        for r in template.of_type("AWS::EC2::SecurityGroupIngress").values()
        if r["Properties"]["GroupId"] == target["SecurityGroups"][0]
    ]
    assert [(r["FromPort"], r["ToPort"], r["IpProtocol"]) for r in ingress] == [(2049, 2049, "tcp")]
    assert ingress[0]["SourceSecurityGroupId"] == stack.resolve(cluster.security_group.security_group_id)
    allow, deny = template.one("AWS::EFS::FileSystem")["Properties"]["FileSystemPolicy"]["Statement"]
    assert allow["Condition"] == {"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}}
    assert (deny["Effect"], deny["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})


def test_the_home_of_an_earlier_cluster_comes_back_by_its_id(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    cluster = make(stack, vpc, home_file_system_id="fs-0123456789abcdef0")
    template = resources(stack)
    assert template.of_type("AWS::EFS::FileSystem") == {}
    assert template.one("AWS::EFS::MountTarget")["Properties"]["FileSystemId"] == "fs-0123456789abcdef0"
    assert cluster.home.file_system_id == "fs-0123456789abcdef0"


# What a person is told


def test_the_way_in_is_the_login_node_as_the_images_user(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    cluster = make(stack, vpc)
    template = resources(stack)
    command = json.dumps(stack.resolve(cluster.start_session_command))
    login = next(
        identifier
        for identifier, group in template.of_type("AWS::PCS::ComputeNodeGroup").items()
        if group["Properties"]["Name"].startswith("login")
    )
    assert command.startswith('{"Fn::Join": ["", ["aws ssm start-session --region us-east-1 --target $(aws ec2')
    assert f'Name=tag:aws:pcs:compute-node-group-id,Values=", {{"Fn::GetAtt": ["{login}", "Id"]}}' in command
    assert "sudo -iu ubuntu" in command


def test_jobs_start_nodes_and_the_outputs_say_so(stack: Stack, vpc: ec2.Vpc) -> None:
    cluster = make(stack, vpc, instances=192, idle_seconds=120)
    assert cluster.start_nodes_command == "sbatch --partition=train --nodes=192 --exclusive JOB.sh"
    assert cluster.start_nodes_description == (
        "On the login node: a job starts (and bills) its nodes, which end after 120 s without one"
    )
    assert set(cluster.outputs) == {"ClusterId", "HomeFileSystemId"}


def test_addresses_beside_the_nodes_are_counted(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    make(stack, vpc)
    template = resources(stack)
    login = node_groups(template)["login-m7i-large"]["ScalingConfiguration"]["MaxInstanceCount"]
    targets = len(template.of_type("AWS::EFS::MountTarget"))
    assert AwsPcsCluster.further_addresses() == login + targets + catalog.pcs().network_interfaces_maximum
