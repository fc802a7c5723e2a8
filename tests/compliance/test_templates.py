"""Every template that the app makes passes cfn-lint and cdk-nag, and both would notice a fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_s3 as s3

from app import build
from training_storage.gpu_cluster import ENGINES
from training_storage.testing import assert_compliant, compliance_findings, lint_findings

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]


def findings(template: dict[str, Any]) -> list[str]:
    return [str(finding) for finding in lint_findings(template, region="us-east-1")]


@pytest.mark.slow
def test_cfn_lint_finds_nothing(synthesize: Callable[..., dict[str, Any]], job: dict[str, str]) -> None:
    assert findings(synthesize(**job)["TrainingStorage"]) == []


BLOCKS = "cr-0123456789abcdef0,cr-0123456789abcdef1,cr-0123456789abcdef2"
# Both engines, for what the jobs above do not make: the other engine, ways of purchase and ways out.
CLUSTERS = {
    "4-ec2": {"instances": "4", "engine": "ec2"},
    "256-ec2": {"instances": "256", "engine": "ec2"},
    "1200-ec2": {"instances": "1200", "engine": "ec2"},
    "4-pcs": {"instances": "4", "engine": "pcs"},
    "1200-pcs": {"instances": "1200", "engine": "pcs"},
    "spot-pcs": {"instances": "4", "purchase": "spot"},
    "reservations-pcs": {"instances": "4", "capacity_reservation_ids": BLOCKS},
    **{
        f"{name}-{engine}": {**context, "engine": engine}
        for engine in ENGINES
        for name, context in {
            "isolated": {"instances": "8", "egress": "isolated"},
            "blocks": {"instances": "192", "purchase": "capacity-block", "capacity_reservation_ids": BLOCKS},
        }.items()
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS.keys())
def test_cfn_lint_and_cdk_nag_find_nothing_in_any_cluster(
    synthesize: Callable[..., dict[str, Any]], violations: Callable[..., list[str]], cluster: dict[str, str]
) -> None:
    assert findings(synthesize(**cluster)["TrainingStorage"]) == []
    assert violations(**cluster) == []


def test_cfn_lint_finds_nothing_in_the_lake_which_is_the_same_for_every_job(
    synthesize: Callable[..., dict[str, Any]],
) -> None:
    assert findings(synthesize(instances="256")["TrainingDataLake"]) == []


def test_cfn_lint_would_notice_an_unknown_property(synthesize: Callable[..., dict[str, Any]]) -> None:
    template = synthesize(instances="256")["TrainingStorage"]
    system = next(r for r in template["Resources"].values() if r["Type"] == "AWS::FSx::FileSystem")
    system["Properties"]["LustreConfiguration"]["Turbo"] = True
    assert any("Turbo" in finding for finding in findings(template))


def app_for(job: dict[str, str], folder: Path) -> App:
    flags = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    return App(context={**flags, **job}, outdir=str(folder))


def test_cdk_nag_has_no_unacknowledged_finding(violations: Callable[..., list[str]], job: dict[str, str]) -> None:
    assert violations(**job) == []


def test_cdk_nag_has_none_in_an_isolated_network_either(violations: Callable[..., list[str]]) -> None:
    assert violations(instances="256", egress="isolated") == []


def test_a_bucket_without_tls_in_the_same_app_would_be_noticed_and_nothing_else_is(tmp_path: Path) -> None:
    app = app_for({"instances": "8"}, tmp_path)
    build(app)
    s3.Bucket(Stack(app, "Careless", env=Environment(region="us-east-1")), "Bucket")
    found = compliance_findings(app, linter=False)
    assert {(finding.path, finding.rule) for finding in found} == {
        ("Careless/Bucket/Resource", "AwsSolutions-S1"),
        ("Careless/Bucket/Resource", "AwsSolutions-S10"),
    }
    with pytest.raises(AssertionError, match=r"^Careless/Bucket/Resource: .* \[AwsSolutions-S1;"):
        assert_compliant(app, linter=False)


def test_acknowledgements_cover_what_they_name_and_no_more(tmp_path: Path) -> None:
    # The library acknowledges for its users too: a grant in a foreign app is clean, a careless one is not.
    from aws_cdk import aws_iam as iam  # noqa: PLC0415

    from training_storage import DataLake  # noqa: PLC0415

    app = App(outdir=str(tmp_path))
    stack = Stack(app, "Foreign", env=Environment(region="us-east-1"))
    role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
    lake = DataLake(stack, "Lake")
    lake.grant_read(role, prefixes=["datasets/"])
    role.add_to_policy(iam.PolicyStatement(actions=["s3:GetObject"], resources=[lake.bucket.arn_for_objects("*")]))
    (wildcard,) = compliance_findings(app, linter=False)
    assert wildcard.rule.startswith("AwsSolutions-IAM5[")
    assert wildcard.rule.endswith(".Arn>/*]")
