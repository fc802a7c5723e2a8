"""`assert_compliant` finds what cdk-nag, our rules and cfn-lint find, says it in one line each, and cannot be blind."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import Acknowledgment, App, CfnResource, Environment, NestedStack, Stack, Stage, Validations
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from cdk_nag import AwsSolutionsChecks
from constructs import RootConstruct

from training_storage.testing import (
    assert_compliant,
    assert_legal,
    compliance,
    compliance_findings,
    lint_findings,
    linting,
    normalised,
)

if TYPE_CHECKING:
    from pathlib import Path

    from constructs import Construct

US = Environment(region="us-east-1")


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(outdir=str(tmp_path / "cdk.out"))


def illegal(scope: Construct, id: str = "Lustre") -> fsx.CfnFileSystem:
    """A file system of a capacity that FSx refuses, and CDK does not."""
    return fsx.CfnFileSystem(
        scope,
        id,
        file_system_type="LUSTRE",
        file_system_type_version="2.15",
        storage_capacity=1300,
        subnet_ids=["subnet-0123456789abcdef0"],
        lustre_configuration=fsx.CfnFileSystem.LustreConfigurationProperty(
            deployment_type="PERSISTENT_2", per_unit_storage_throughput=125
        ),
    )


def acknowledge(construct: Construct, identifier: str) -> None:
    Validations.of(construct).acknowledge(Acknowledgment(id=identifier, reason="It is only a test."))


def found(scope: Any, **options: Any) -> set[tuple[str, str]]:
    return {(finding.path, finding.rule) for finding in compliance_findings(scope, **options)}


def test_what_was_found_breaks_no_later_synth_of_the_app(app: App) -> None:
    stack = Stack(app, "Job", env=US)
    bucket = s3.CfnBucket(stack, "Bucket", bucket_name="Wrong_Name")
    illegal(stack)
    tools = {finding.tool for finding in compliance_findings(app, linter=True)}
    assert tools == {"cdk-nag", "training-storage", "cfn-lint"}
    template = normalised(stack)
    assert template["Resources"].keys() == {"Bucket", "Lustre"}
    bucket.bucket_name = "right-name"
    assert {finding.tool for finding in compliance_findings(app, linter=True)} == {"cdk-nag", "training-storage"}


def test_an_app_with_plugins_of_its_own_that_fail_is_reported_once_and_linted(app: App) -> None:
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    stack = Stack(app, "Job", env=US)
    s3.CfnBucket(stack, "Bucket", bucket_name="Wrong_Name")
    found = compliance_findings(app, linter=True)
    assert len({(finding.path, finding.rule) for finding in found}) == len(found)
    assert {finding.tool for finding in found} == {"cdk-nag", "cfn-lint"}


def test_findings_of_cdk_nag_and_ours_come_from_stacks_nested_ones_and_stages(app: App) -> None:
    stack = Stack(app, "Job", env=US)
    s3.CfnBucket(stack, "Bucket")
    tier = NestedStack(stack, "Tier")
    illegal(tier)
    stage = Stage(app, "Prod", env=US)
    illegal(Stack(stage, "Job"))
    illegal_places = {("Job/Tier/Lustre", "lustre-capacity"), ("Prod/Job/Lustre", "lustre-capacity")}
    nag = {("Job/Bucket", "AwsSolutions-S1"), ("Job/Bucket", "AwsSolutions-S10")}
    assert found(app, linter=False) == illegal_places | nag
    # Of a part only what lies within it; asked again the app is as it was.
    assert found(stage, linter=False) == {("Prod/Job/Lustre", "lustre-capacity")}
    assert found(stack, linter=False) == nag | {("Job/Tier/Lustre", "lustre-capacity")}
    assert found(tier, linter=True) == {("Job/Tier/Lustre", "lustre-capacity")}


def test_a_finding_is_one_line_with_place_rule_and_way_out_that_works(app: App) -> None:
    stack = Stack(app, "Job", env=US)
    lustre = illegal(stack)
    topic = sns.CfnTopic(stack, "Topic")
    with pytest.raises(AssertionError) as refused:
        assert_compliant(app, linter=False)
    lines = str(refused.value).splitlines()
    assert len(lines) == 2
    by_place = {line.split(":")[0]: line for line in lines}
    assert "must be 1200 or a multiple of 2400 GiB" in by_place["Job/Lustre"]
    for construct, identifier in ((lustre, "training-storage::lustre-capacity"), (topic, "AwsSolutions-SNS3")):
        assert f'acknowledge(Acknowledgment(id="{identifier}", reason="…"))]' in by_place[construct.node.path]
        acknowledge(construct, identifier)
    assert_compliant(app, linter=False)


def test_an_acknowledgement_above_counts_and_elsewhere_does_not(app: App) -> None:
    stack = Stack(app, "Job", env=US)
    tier, other = NestedStack(stack, "Tier"), NestedStack(stack, "Other")
    illegal(tier)
    illegal(other)
    acknowledge(tier, "training-storage::lustre-capacity")
    assert found(app, linter=False) == {("Job/Other/Lustre", "lustre-capacity")}


def test_an_acknowledgement_in_one_stage_leaves_the_same_stack_of_another_stage_alone(app: App) -> None:
    test = illegal(Stack(Stage(app, "Test", env=US), "Job"))
    illegal(Stack(Stage(app, "Prod", env=US), "Job"))
    acknowledge(test, "training-storage::lustre-capacity")
    assert found(app, linter=False) == {("Prod/Job/Lustre", "lustre-capacity")}


def test_cfn_lint_sees_nested_stacks_and_the_region_of_each_stack(app: App) -> None:
    stack = Stack(app, "Job", env=US)
    CfnResource(NestedStack(stack, "Tier"), "Wrong", type="AWS::SQS::Queue", properties={"NoSuchProperty": 1})
    # PCS is not to be had there.
    elsewhere = Stack(app, "Cluster", env=Environment(region="ca-west-1"))
    CfnResource(elsewhere, "Queue", type="AWS::PCS::Queue", properties={"ClusterId": "pcs_0123456789"})
    lines = [str(one) for one in compliance_findings(app, linter=True) if one.tool == "cfn-lint"]
    assert len(lines) == 2
    (nested,) = [line for line in lines if "NoSuchProperty" in line]
    assert nested.startswith("Job/TierNestedStackTierNestedStackResource")
    assert "/Resources/Wrong/Properties/NoSuchProperty: " in nested
    assert nested.endswith("[E3002; mend it, or leave the rule out with ignore=['E3002']]")
    (region,) = [line for line in lines if "AWS::PCS::Queue" in line]
    assert region.startswith("Cluster/Resources/Queue/Type: ")
    left = compliance_findings(app, linter=True, ignore=["E3002", "E3006"])
    assert [one for one in left if one.tool == "cfn-lint"] == []


def test_errors_of_other_plugins_count_and_their_warnings_do_not(app: App) -> None:
    # CDK's own rules only warn unless the app's flag makes them errors.
    CfnResource(Stack(app, "Job", env=US), "Wrong", type="AWS::SQS::Topic")
    assert found(app, linter=False) == set()
    strict = App(context={"@aws-cdk/core:validateAgainstDefaultRules": True})
    CfnResource(Stack(strict, "Job", env=US), "Queue", type="AWS::SQS::Queue", properties={"NoSuchProperty": 1})
    assert {path for path, _ in found(strict, linter=False)} >= {"Job/Queue"}


def test_other_failures_of_the_synth_are_not_swallowed(app: App) -> None:
    stack = Stack(app, "Job", env=US)
    first, second = sns.CfnTopic(stack, "One"), sns.CfnTopic(stack, "Two")
    first.override_logical_id("Same")
    second.override_logical_id("Same")
    with pytest.raises(RuntimeError, match="Same"):
        compliance_findings(app, linter=False)


@pytest.fixture
def _tried_anew() -> Any:
    """Forget that the checks were seen to work, before and after."""
    for check in (compliance._require_nag, linting._require_sight):
        check.cache_clear()
    yield
    for check in (compliance._require_nag, linting._require_sight):
        check.cache_clear()


@pytest.mark.usefixtures("_tried_anew")
def test_a_cdk_nag_that_finds_nothing_is_no_clean_app(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    Stack(app, "Job", env=US)
    monkeypatch.setattr(compliance, "_reported", lambda _report: iter(()))
    with pytest.raises(RuntimeError, match="cdk-nag must find fault with a bucket .*, got: nothing"):
        assert_compliant(app, linter=False)


@pytest.mark.usefixtures("_tried_anew")
def test_a_synth_without_plugins_is_no_clean_app(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    Stack(app, "Job", env=US)
    monkeypatch.setattr(Validations, "add_plugins", lambda *_plugins: None)
    with pytest.raises(RuntimeError, match="CDK must run the validation plugins during the synth, got: none run"):
        assert_compliant(app, linter=False)


@pytest.mark.usefixtures("_tried_anew")
def test_a_cfn_lint_that_finds_nothing_is_no_clean_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linting, "_run", lambda *_arguments, **_options: [])
    with pytest.raises(RuntimeError, match="cfn-lint must find a property that does not exist, got: nothing"):
        lint_findings({"Resources": {}})


@pytest.mark.usefixtures("_tried_anew")
def test_a_missing_cdk_nag_is_said_with_the_way_to_install_it(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    Stack(app, "Job", env=US)
    monkeypatch.delitem(sys.modules, "training_storage.testing.compliance_plugins", raising=False)
    monkeypatch.setitem(sys.modules, "cdk_nag", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs cdk-nag, got: none; pip install 'training-storage\[testing"):
        assert_compliant(app, linter=False)


def test_without_cfn_lint_the_rest_is_checked_unless_it_is_asked_for(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.CfnBucket(Stack(app, "Job", env=US), "Bucket")
    monkeypatch.setattr(linting, "can_lint", lambda: False)
    assert {rule for _, rule in found(app)} == {"AwsSolutions-S1", "AwsSolutions-S10"}
    with pytest.raises(ModuleNotFoundError, match=r"linting needs cfn-lint, got: none; pip install"):
        compliance_findings(app, linter=True)


@pytest.mark.parametrize(
    ("scope", "kind", "message"),
    [
        (
            {"Resources": {}},
            TypeError,
            "scope must be an App, Stage or Stack, .* got: dict; a template is checked with",
        ),
        (None, TypeError, "got: NoneType"),
    ],
)
def test_what_has_no_constructs_is_refused_in_one_line(scope: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as refused:
        assert_compliant(scope)
    assert "\n" not in str(refused.value)


def test_a_stage_without_an_app_is_refused() -> None:
    with pytest.raises(ValueError, match="scope must be in an App, which runs validation plugins"):
        assert_compliant(Stage(RootConstruct("Tree"), "Alone"))


def test_legality_looks_into_nested_stacks_too(app: App) -> None:
    stack = Stack(app, "Job", env=US)
    illegal(NestedStack(stack, "Tier"))
    with pytest.raises(AssertionError, match=r"^TierNestedStack\w+/Lustre: storage_capacity_gib must be"):
        assert_legal(app)
    assert_legal({"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}})


def test_the_region_of_the_stack_is_known_to_the_rules(app: App) -> None:
    bucket = {"Type": "AWS::S3Express::DirectoryBucket", "Properties": {"LocationName": "use1-az4"}}
    CfnResource(
        Stack(app, "Job", env=Environment(region="us-west-2")),
        "Hot",
        type=str(bucket["Type"]),
        properties={"DataRedundancy": "SingleAvailabilityZone", "LocationName": "use1-az4"},
    )
    with pytest.raises(AssertionError, match="Hot: .*use1-az4"):
        assert_legal(app)
