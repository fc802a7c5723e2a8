"""Which engine starts the nodes of a plan, and what each refuses."""

from __future__ import annotations

from typing import Any

import pytest

from training_storage.planning import InvalidJobError, StoragePlan, TrainingJob, catalog, choose_engine, plan_storage
from training_storage.planning.catalog.capacity_blocks import capacity_blocks
from training_storage.planning.engines import ENGINE_WORDS

DLAMI = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"


def plan(**fields: Any) -> StoragePlan:
    return plan_storage(TrainingJob(**({"instances": 256} | fields)))


def refusal(plan: StoragePlan, **options: Any) -> str:
    with pytest.raises(InvalidJobError) as error:
        choose_engine(plan, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_pcs_is_the_default_and_needs_no_excuse() -> None:
    choice = choose_engine(plan())
    assert (choice.name, choice.note) == ("pcs", None)
    assert choice.lines() == (
        "  engine   pcs (AWS PCS, managed Slurm; its fee, its login node and /home are not in the prices)",
    )


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        ({"instances": 2048}, "AWS PCS has at most 2047 instances beside its login node (2048 nodes), and 2048 train"),
        ({"region": "us-west-1"}, "AWS PCS is not in us-west-1"),
        ({"region": "cn-north-1", "zone_id": "cnn1-az1"}, "AWS PCS is not in cn-north-1"),
        (
            {"zone_id": "use1-dfw2-az1", "instance_type": "p6e-gb200.36xlarge", "instances": 18},
            "AWS PCS does not work in Local Zones such as use1-dfw2-az1",
        ),
        (
            {"instance_type": "trn1.32xlarge", "zone_id": "use1-az1"},
            "no PCS-ready image for Trainium is published; with one of your own, give ami_parameter",
        ),
    ],
    ids=str,
)
def test_where_pcs_cannot_serve_the_default_is_ec2_with_the_reason_and_asking_for_pcs_is_refused(
    fields: dict[str, Any], note: str
) -> None:
    made = plan(**fields)
    choice = choose_engine(made)
    assert (choice.name, choice.note) == ("ec2", note)
    assert note in " ".join(" ".join(choice.lines()).split())
    assert all(len(line) <= 110 for line in choice.lines())
    assert refusal(made, engine="pcs") == f"engine must be ec2 here, got: 'pcs': {note}."
    assert choose_engine(made, engine="ec2").note is None


def test_2047_instances_are_the_most_beside_a_login_node() -> None:
    assert choose_engine(plan(instances=2047), engine="pcs").name == "pcs"


def test_an_image_of_the_callers_brings_pcs_to_trainium() -> None:
    made = plan(instance_type="trn1.32xlarge", zone_id="use1-az1")
    assert choose_engine(made, ami_parameter="/team/pcs-neuron").name == "pcs"


@pytest.mark.parametrize("engine", [None, "pcs"])
def test_an_image_that_is_known_to_lack_the_agent_is_refused(engine: str | None) -> None:
    line = refusal(plan(), engine=engine, ami_parameter=DLAMI)
    assert line.startswith(f"ami_parameter must name an image with the AWS PCS agent for engine=pcs, got: '{DLAMI}'")
    assert "/aws/service/pcs/ami/dlami-base-ubuntu2404/x86_64/latest/ami-id, or choose engine=ec2." in line
    assert choose_engine(plan(), engine="ec2", ami_parameter=DLAMI).name == "ec2"


def test_an_unknown_engine_is_refused_with_the_known_ones() -> None:
    assert refusal(plan(), engine="eks") == f"engine must be one of {', '.join(ENGINE_WORDS)}, got: 'eks'."


@pytest.mark.parametrize(
    ("instances", "size"),
    [(1, "SMALL"), (31, "SMALL"), (32, "MEDIUM"), (511, "MEDIUM"), (512, "LARGE"), (2047, "LARGE"), (2048, None)],
)
def test_the_login_node_counts_in_the_size_of_a_cluster(instances: int, size: str | None) -> None:
    assert catalog.pcs().size_for(instances) == size


def test_the_default_version_of_slurm_is_the_newest_that_both_the_api_and_the_images_are_known_to_have() -> None:
    limits = catalog.pcs()
    both = set(limits.slurm_versions) & set(limits.slurm_image_versions)
    assert limits.slurm_default_version == max(both)
    # An image of the caller's may have a newer one, which the API takes.
    assert set(limits.slurm_image_versions) <= set(limits.slurm_versions)


def test_capacity_blocks_hold_64_instances_and_end_half_an_hour_early() -> None:
    limits = capacity_blocks()
    assert (limits.instances, limits.instances_in_all, limits.end_minutes) == (64, 256, 30)
    assert {name: limits.end_minutes_of(name) for name in ("p5.48xlarge", "p6e-gb200.36xlarge")} == {
        "p5.48xlarge": 30,
        "p6e-gb200.36xlarge": 60,
    }
    assert set(limits.ultraserver_types) <= set(catalog.instance_types())
