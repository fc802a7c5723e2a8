"""The context of a CDK app is read once and strictly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from training_storage.planning import (
    DeploymentOptions,
    DeploymentRequest,
    PlanningError,
    TrainingJob,
    plan_storage,
    split_context,
)

if TYPE_CHECKING:
    from pathlib import Path

RESERVATION = "cr-0123456789abcdef0"


def refusal(context: dict[str, object]) -> str:
    with pytest.raises(PlanningError) as error:
        split_context(context)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_defaults() -> None:
    options = DeploymentOptions()
    assert (options.plan, options.engine, options.egress, options.purchase) == (None, None, "nat", "on-demand")
    assert DeploymentOptions.from_strings({}) == options


def test_fields_of_the_job_and_options_are_told_apart() -> None:
    request = split_context({"instances": "256", "name": "run-7", "egress": "isolated", "tiers": "s3"})
    assert request.job == TrainingJob(instances=256, name="run-7", tiers=("s3",))
    assert request.options == DeploymentOptions(egress="isolated")
    assert (request.plan, request.name, request.region) == (None, "run-7", None)


def test_without_instances_there_is_no_job_but_name_and_region_are_known() -> None:
    request = split_context({"name": "run-7", "region": "us-west-2"})
    assert request == DeploymentRequest(
        job=None, plan=None, options=DeploymentOptions(), name="run-7", region="us-west-2"
    )
    assert split_context({}).job is None


def test_without_instances_the_other_fields_are_checked_all_the_same() -> None:
    assert "interface must be one of" in refusal({"interface": "nfs"})


def test_keys_of_cdk_are_left_alone() -> None:
    context: dict[str, object] = {
        "aws:cdk:bundling-stacks": [],
        "@aws-cdk/core:newStyleStackSynthesis": True,
        "aws-cdk:enableDiffNoFail": "true",
        "availability-zones:account=1:region=us-east-1": ["us-east-1a"],
        "instances": "8",
    }
    assert split_context(context).job == TrainingJob(instances=8)


@pytest.mark.parametrize(
    ("key", "meant"),
    [("instnces", "instances"), ("egres", "egress"), ("capacity_reservation_id", "capacity_reservation_ids")],
)
def test_an_unknown_key_gets_a_suggestion_from_both_sets(key: str, meant: str) -> None:
    assert f"Did you mean '{meant}'?" in refusal({key: "1"})


@pytest.mark.parametrize("value", [256, True, None, ["256"]])
def test_values_that_are_no_text_are_refused(value: object) -> None:
    assert "instances must be text, as -c gives it" in refusal({"instances": value})


@pytest.mark.parametrize("key", ["time_to_live_hours", "idle_park_hours"])
def test_a_park_by_itself_needs_somebody_to_warn(key: str) -> None:
    assert refusal({"instances": "8", key: "12"}) == (
        f"alarm_topic_arn must be given with {key}, got: none. The warning before the park goes there; "
        "for example alarm_topic_arn=arn:aws:sns:us-east-1:111122223333:training-alarms."
    )
    topic = "arn:aws:sns:us-east-1:111122223333:training-alarms"
    options = split_context({"instances": "8", key: "12", "alarm_topic_arn": topic}).options
    assert getattr(options, key) == 12


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"engine": "slurm"}, "engine must be one of pcs, ec2, got: 'slurm'."),
        ({"engine": "pcs", "region": "cn-north-1"}, "engine must be ec2 here, got: 'pcs': AWS PCS is not in cn-north"),
        (
            {"home_file_system_id": "home"},
            "the id of an EFS file system, for example fs-0123456789abcdef0, got: 'home'",
        ),
        (
            {"alarm_topic_arn": "arn:aws:sns:eu-west-1:111122223333:a.fifo"},
            (
                "alarm_topic_arn must be the ARN of an SNS topic (not a FIFO one, which takes no alarms), for example"
                " arn:aws:sns:us-east-1:111122223333:training-alarms, got: 'arn:aws:sns:eu-west-1:111122223333:a.fifo'."
            ),
        ),
        (
            {"release_after_days": "0"},
            "release_after_days must be a whole number from 1 to 3650, for example 7, got: 0.",
        ),
        ({"slurm_version": "23.11"}, "slurm_version must be one of 24.11, 25.05, 25.11, 26.05, got: '23.11'."),
        ({"egress": "internet"}, "egress must be one of nat, isolated, got: 'internet'."),
        ({"purchase": "ondemand"}, "Did you mean 'on-demand'?"),
        ({"purchase": "capacity-block"}, "capacity_reservation_ids must name the Capacity Blocks"),
        ({"purchase": "spot", "capacity_reservation_ids": RESERVATION}, "must be left out for purchase=spot"),
        ({"capacity_reservation_ids": "cr-1"}, "ids of reservations, for example cr-0123456789abcdef0, got: 'cr-1'."),
        ({"capacity_reservation_ids": f"{RESERVATION},{RESERVATION}"}, "must name each value once"),
        ({"capacity_reservation_ids": f"{RESERVATION}, {RESERVATION}"}, "ids of reservations"),
        ({"ami_parameter": "ami-123"}, "the name of an SSM parameter that starts with /"),
        ({"vpc_id": "vpc-0123456789abcdef0"}, "vpc_id and subnet_id must be given together, got: vpc_id without"),
        ({"subnet_id": "subnet-0123456789abcdef0"}, "got: subnet_id without vpc_id."),
        ({"vpc_id": "my-vpc", "subnet_id": "subnet-0123456789abcdef0"}, "vpc_id must be the id of a VPC"),
        ({"data_lake_bucket_name": "lake"}, "data_lake_bucket_name and data_lake_key_arn must be given together"),
        ({"data_lake_bucket_name": "my.lake"}, "without dots"),
        ({"data_lake_key_arn": "alias/lake"}, "the ARN of a KMS key"),
    ],
    ids=str,
)
def test_options_are_checked(values: dict[str, object], words: str) -> None:
    assert words in refusal({"instances": "8", **values})


def test_valid_options_are_read() -> None:
    options = DeploymentOptions.from_strings(
        {
            "purchase": "capacity-block",
            "capacity_reservation_ids": "cr-0123456789abcdef0,cr-0123456789abcdef1",
            "ami_parameter": "/team/ami",
            "vpc_id": "vpc-0123456789abcdef0",
            "subnet_id": "subnet-0123456789abcdef0",
            "data_lake_bucket_name": "my-data-lake",
            "data_lake_key_arn": "arn:aws-cn:kms:cn-north-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab",
        }
    )
    assert options.capacity_reservation_ids == ("cr-0123456789abcdef0", "cr-0123456789abcdef1")
    assert options.ami_parameter == "/team/ami"


def test_capacity_blocks_hold_64_instances_each_and_256_in_all() -> None:
    def blocks(count: int, instances: int) -> dict[str, object]:
        ids = ",".join(f"cr-{number:017x}" for number in range(count))
        return {"instances": str(instances), "purchase": "capacity-block", "capacity_reservation_ids": ids}

    assert split_context(blocks(1, 64)).job is not None
    assert "at least 2 Capacity Blocks for 65 instances (64 per block), got: 1." in refusal(blocks(1, 65))
    assert split_context(blocks(3, 192)).job is not None
    assert "at least 4 Capacity Blocks for 256 instances (64 per block), got: 2." in refusal(blocks(2, 256))
    assert split_context(blocks(4, 256)).job is not None
    assert "instances must be at most 256 for purchase=capacity-block, got: 257." in refusal(blocks(5, 257))


def test_an_engine_that_is_not_in_the_region_is_refused_before_anybody_says_how_many_instances() -> None:
    line = refusal({"engine": "pcs", "region": "cn-north-1"})
    assert line == "engine must be ec2 here, got: 'pcs': AWS PCS is not in cn-north-1."
    assert split_context({"engine": "ec2", "region": "cn-north-1"}).options.engine == "ec2"


def test_what_a_person_should_know_of_capacity_blocks_is_said() -> None:
    ids = tuple(f"cr-{number:017x}" for number in range(3))
    lines = DeploymentOptions(purchase="capacity-block", capacity_reservation_ids=ids).notes(instances=192)
    assert all(len(line) <= 110 for line in lines)
    text = " ".join(" ".join(lines).split())
    assert "192 instances in 3 Capacity Blocks: each must hold 64" in text
    assert "at most 14 days, or 182 in whole weeks" in text
    assert "EC2 terminates its instances 30 minutes before it ends (60 in an UltraServer)" in text
    assert DeploymentOptions().notes(instances=192) == ()
    spot = DeploymentOptions(purchase="spot").notes(instances=192)
    assert spot == ("  note     prices of nodes are on demand, not of purchase=spot",)


DLAMI = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"


@pytest.mark.parametrize(
    ("engine", "instance_type", "image", "warned"),
    [
        ("pcs", "p5.48xlarge", None, True),
        (None, None, None, True),
        ("pcs", "p5.48xlarge", "/team/pcs-image", False),
        ("pcs", "trn1.32xlarge", "/team/pcs-neuron", False),
        ("ec2", "p5.48xlarge", None, False),
        ("ec2", "trn1.32xlarge", None, False),
        ("ec2", "p5.48xlarge", DLAMI, True),
        ("ec2", "p5.48xlarge", DLAMI.replace("ubuntu-24.04", "amazon-linux-2023"), False),
    ],
)
def test_the_plan_warns_where_an_isolated_network_does_not_lead_to_the_packages_that_the_image_lacks(
    engine: str | None, instance_type: str | None, image: str | None, *, warned: bool
) -> None:
    for egress in ("isolated", "nat"):
        options = DeploymentOptions(egress=egress, ami_parameter=image)
        lines = options.notes(instances=8, instance_type=instance_type, engine=engine)
        assert all(len(line) <= 110 for line in lines)
        text = " ".join(" ".join(lines).split())
        assert ("note warning: egress=isolated: /aws/service/" in text) == (warned and egress == "isolated")
        if text:
            assert "nodes would never get ready. Give ami_parameter with an image that has both or egress=nat" in text


def test_a_type_is_bought_only_the_way_it_is_sold() -> None:
    line = refusal({"instances": "8", "instance_type": "p5e.48xlarge"})
    assert "purchase must be one of capacity-block for p5e.48xlarge, got: 'on-demand'." in line
    blocks = {"purchase": "capacity-block", "capacity_reservation_ids": RESERVATION}
    assert "on-demand, spot for g5.48xlarge" in refusal({"instances": "8", "instance_type": "g5.48xlarge", **blocks})


def test_a_plan_file_is_deployed_as_it_is(tmp_path: Path) -> None:
    plan = plan_storage(TrainingJob(instances=64, name="run-7", region="us-west-2"))
    path = tmp_path / "plan.json"
    path.write_text(plan.to_json(), encoding="utf-8")
    request = split_context({"plan": str(path), "egress": "isolated"})
    assert (request.plan, request.job, request.name, request.region) == (plan, None, "run-7", "us-west-2")
    assert "instances beside it" in refusal({"plan": str(path), "instances": "8"})
    assert "file not found" in refusal({"plan": str(tmp_path / "missing.json")})


def test_a_plan_file_of_more_nodes_than_the_blocks_hold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(plan_storage(TrainingJob(instances=65)).to_json(), encoding="utf-8")
    blocks = {"purchase": "capacity-block", "capacity_reservation_ids": RESERVATION}
    assert "at least 2 Capacity Blocks" in refusal({"plan": str(path), **blocks})
