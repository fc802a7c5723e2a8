"""The gate's place in the stack, and what its function may do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App, Duration, Environment, NestedStack, Stack, Stage
from aws_cdk import aws_ec2 as ec2

from training_storage import ConstructError, DataRepositoryAssociation, ImportedDataLake, LustreFileSystem
from training_storage import operations as operations_package
from training_storage.final_export import FinalExport
from training_storage.planning.catalog.cloudformation import custom_resource_seconds_maximum
from training_storage.testing import compliance_findings, lint_findings

if TYPE_CHECKING:
    from collections.abc import Callable

    Synthesize = Callable[[Stack], Any]

CODE = Path(operations_package.__file__ or "").parent / "final_export"
KEY = "arn:aws:kms:us-east-1:111122223333:key/0a1b2c3d-0000-4000-8000-000000000001"
LINKS: tuple[tuple[str, str, list[str], list[str]], ...] = (
    ("/datasets", "datasets/", ["NEW"], []),
    ("/checkpoints", "checkpoints/default/", [], []),
    ("/logs", "logs/default/", [], ["NEW", "CHANGED"]),
)


class Tier:
    """A file system with links in a stack, before it gets a gate."""

    def __init__(self, stack: Stack, *, links: tuple[tuple[str, str, list[str], list[str]], ...] = LINKS) -> None:
        self.stack = stack
        self.vpc = ec2.Vpc(stack, "Network", max_azs=1, restrict_default_security_group=False)
        self.lake = ImportedDataLake(stack, "Lake", bucket_name="lake", encryption_key_arn=KEY)
        self.file_system = LustreFileSystem(
            stack,
            "FileSystem",
            vpc=self.vpc,
            subnet=self.vpc.private_subnets[0],
            storage_capacity_gib=1200,
            per_unit_storage_throughput=125,
        )
        for path, prefix, imports, exports in links:
            self.link(path, prefix, imports, exports)

    def link(self, path: str, prefix: str, imports: list[str], exports: list[str], **more: Any) -> None:
        DataRepositoryAssociation(
            self.stack,
            path.strip("/").title(),
            file_system=self.file_system,
            file_system_path=path,
            data_lake=self.lake,
            prefix=prefix,
            import_events=imports,
            export_events=exports,
            **more,
        )

    def gate(self, **more: Any) -> FinalExport:
        name = more.pop("id", "FinalExport")
        arguments = {"file_system": self.file_system, "data_lake": self.lake, "job_name": "default", **more}
        return FinalExport(self.stack, name, **arguments)


def logical_ids(template: Any, kind: str) -> set[str]:
    return set(template.of_type(kind))


def before(template: Any, name: str) -> set[str]:
    """Return everything that must be there before a resource, and so goes after it."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        resource = template.by_id[waiting.pop()]
        needs = set(resource.get("DependsOn", []))
        needs |= set(re.findall(r'"(?:Ref|Fn::GetAtt)": \[?"([A-Za-z0-9]+)"', json.dumps(resource)))
        waiting += [need for need in needs - found if need in template.by_id]
        found |= needs & set(template.by_id)
    return found


# ---- its place ----


def test_it_goes_before_file_system_links_and_network_which_all_stay_if_it_does(
    stack: Stack, resources: Synthesize
) -> None:
    tier = Tier(stack)
    tier.gate(network=[tier.vpc])
    template = resources(stack)
    [gate] = logical_ids(template, "Custom::FinalExport")
    needed = before(template, gate)
    for kind in (
        "AWS::FSx::FileSystem",
        "AWS::FSx::DataRepositoryAssociation",
        "AWS::EC2::Subnet",
        "AWS::EC2::NatGateway",
        "AWS::EC2::Route",
        "AWS::EC2::SecurityGroup",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::EC2::SecurityGroupEgress",
        "AWS::Lambda::Function",
        "AWS::Logs::LogGroup",
        "AWS::IAM::Role",
        "AWS::IAM::Policy",
        "AWS::StepFunctions::StateMachine",
    ):
        assert logical_ids(template, kind), kind
        assert logical_ids(template, kind) <= needed, kind


def test_the_keeper_comes_before_the_file_system_and_after_its_network(stack: Stack, resources: Synthesize) -> None:
    tier = Tier(stack)
    tier.gate()
    template = resources(stack)
    [keeper] = logical_ids(template, "Custom::FileSystemKeeper")
    [system] = logical_ids(template, "AWS::FSx::FileSystem")
    assert keeper in template.by_id[system]["DependsOn"]
    subnet = stack.resolve(tier.file_system.subnet.subnet_id)["Ref"]
    rules = logical_ids(template, "AWS::EC2::SecurityGroupIngress") | logical_ids(
        template, "AWS::EC2::SecurityGroupEgress"
    )
    assert {subnet, *rules, *logical_ids(template, "AWS::EC2::SecurityGroup")} <= before(template, keeper)


def test_behind_a_gate_cloudformation_deletes_nothing_not_even_in_a_rollback(
    stack: Stack, resources: Synthesize
) -> None:
    Tier(stack).gate()
    template = resources(stack)
    kinds = ("AWS::FSx::FileSystem", "AWS::FSx::DataRepositoryAssociation")
    guarded = [resource for kind in kinds for resource in template.of_type(kind).values()]
    assert len(guarded) == 4
    assert {(r["DeletionPolicy"], r["UpdateReplacePolicy"]) for r in guarded} == {("Retain", "Retain")}


def test_file_system_and_links_carry_the_tag_of_their_gate(stack: Stack, resources: Synthesize) -> None:
    Tier(stack).gate()
    template = resources(stack)
    kinds = ("AWS::FSx::FileSystem", "AWS::FSx::DataRepositoryAssociation")
    tags = [
        [tag["Value"] for tag in resource["Properties"]["Tags"] if tag["Key"] == "training-storage:gate"]
        for kind in kinds
        for resource in template.of_type(kind).values()
    ]
    assert len(tags) == 4
    assert all(tag == tags[0] for tag in tags)
    assert {"Ref": "AWS::StackId"} in tags[0][0]["Fn::Join"][1]
    functions = template.of_type("AWS::Lambda::Function").values()
    given = [f["Properties"].get("Environment", {}).get("Variables", {}).get("GATE_TAG") for f in functions]
    assert [tag for tag in given if tag] == [tags[0][0], tags[0][0]]


def test_what_only_comes_in_is_not_exported_and_everything_else_is(stack: Stack, resources: Synthesize) -> None:
    tier = Tier(stack)
    tier.link("/shared", "raw/", ["NEW"], [], writable=True)
    tier.gate(disposable_paths=["/checkpoints/"])
    gate = resources(stack).one("Custom::FinalExport")["Properties"]
    assert {link["Path"]: link["Exported"] for link in gate["Links"]} == {
        "/datasets": "false",
        "/checkpoints": "false",
        "/logs": "true",
        "/shared": "true",
    }


def test_it_gives_up_before_the_framework_and_the_framework_before_cloudformation(
    stack: Stack, resources: Synthesize
) -> None:
    Tier(stack).gate()
    template = resources(stack)
    functions = template.of_type("AWS::Lambda::Function").values()
    [wait] = {
        int(variables["WAIT_SECONDS"])
        for function in functions
        if "WAIT_SECONDS" in (variables := function["Properties"].get("Environment", {}).get("Variables", {}))
    }
    definition = json.dumps(template.one("AWS::StepFunctions::StateMachine")["Properties"]["DefinitionString"])
    interval = int(re.search(r'IntervalSeconds\\+":(\d+)', definition)[1])  # type: ignore[index]
    attempts = int(re.search(r'MaxAttempts\\+":(\d+)', definition)[1])  # type: ignore[index]
    assert wait < interval * attempts == 55 * 60 < custom_resource_seconds_maximum()


def test_the_log_is_kept_for_a_while(stack: Stack, resources: Synthesize) -> None:
    Tier(stack).gate()
    groups = resources(stack).of_type("AWS::Logs::LogGroup")
    [log] = [group for name, group in groups.items() if name.startswith("FinalExport")]
    assert log["Properties"]["RetentionInDays"] == 90


# ---- what its function may do ----


def statements(template: Any) -> list[dict[str, Any]]:
    policies = template.of_type("AWS::IAM::Policy")
    [policy] = [policy for name, policy in policies.items() if name.startswith("FinalExportRole")]
    found: list[dict[str, Any]] = policy["Properties"]["PolicyDocument"]["Statement"]
    return found


def actions(statement: dict[str, Any]) -> set[str]:
    given = statement["Action"]
    return {given} if isinstance(given, str) else set(given)


def test_it_may_do_what_the_code_calls_and_no_more(stack: Stack, resources: Synthesize) -> None:
    Tier(stack).gate()
    source = "".join(path.read_text(encoding="utf-8") for path in CODE.glob("*.py"))
    called = set(re.findall(r'"((?:fsx|s3|cloudwatch|cloudformation):[A-Z]\w+)"', source))
    allowed = {action for statement in statements(resources(stack)) for action in actions(statement)}
    # Besides: S3 tells a missing report from a denied one by ListBucket, and the lake's key opens and seals objects.
    others = {
        "s3:ListBucket",
        "kms:Decrypt",
        "kms:GenerateDataKey",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
    }
    assert len(called) == 12
    assert allowed == called | others


def test_it_changes_only_what_carries_its_tag(stack: Stack, resources: Synthesize) -> None:
    tier = Tier(stack)
    tier.gate()
    template = resources(stack)
    [tag] = [
        tag["Value"]
        for tag in template.one("AWS::FSx::FileSystem")["Properties"]["Tags"]
        if tag["Key"] == "training-storage:gate"
    ]
    for statement in statements(template):
        changing = {action for action in actions(statement) if re.match(r"fsx:(?!Describe)", action)}
        if changing:
            [(key, value)] = statement["Condition"]["StringEquals"].items()
            assert key.endswith("Tag/training-storage:gate")
            assert value == tag
            assert "*" not in (statement["Resource"] if isinstance(statement["Resource"], list) else [])


def test_it_takes_wildcards_only_for_what_has_no_resource(stack: Stack, resources: Synthesize) -> None:
    Tier(stack).gate()
    for statement in statements(resources(stack)):
        if statement["Resource"] == "*":
            assert actions(statement) == {
                "cloudwatch:GetMetricData",
                "fsx:DescribeDataRepositoryAssociations",
                "fsx:DescribeDataRepositoryTasks",
                "fsx:DescribeFileSystems",
            }


def test_in_the_lake_it_sees_the_reports_alone(stack: Stack, resources: Synthesize) -> None:
    Tier(stack).gate()
    by_id = {statement["Sid"]: statement for statement in statements(resources(stack))}
    assert by_id["Reports"]["Resource"] == "arn:aws:s3:::lake/logs/default/final-export/*"
    assert by_id["ListReports"]["Condition"] == {"StringLike": {"s3:prefix": ["logs/default/final-export/*"]}}
    assert by_id["LakeKey"]["Resource"] == KEY
    assert by_id["OwnStack"]["Resource"] == {"Ref": "AWS::StackId"}


@pytest.mark.slow
def test_cdk_nag_and_cfn_lint_find_nothing(tmp_path: Path) -> None:
    flags = json.loads((Path(__file__).parents[2] / "cdk.json").read_text(encoding="utf-8"))["context"]
    app = App(context=flags, outdir=str(tmp_path))
    stack = Stack(app, "Job", env=Environment(region="us-east-1"))
    tier = Tier(stack)
    tier.gate(network=[tier.vpc])
    # The network of this test is careless; nothing that is found lies in the gate.
    paths = [finding.path for finding in compliance_findings(app, linter=False)]
    assert any("Job/Network" in path for path in paths)
    assert [path for path in paths if "FinalExport" in path or "FileSystem" in path] == []
    assert lint_findings(app) == ()


# ---- what is refused ----


def test_links_come_before_their_gate(stack: Stack) -> None:
    tier = Tier(stack)
    tier.gate()
    with pytest.raises(ConstructError, match="links must be made before the FinalExport.*got: /late after it"):
        tier.link("/late", "raw/", [], [])


def test_a_file_system_has_one_gate(stack: Stack) -> None:
    tier = Tier(stack)
    tier.gate()
    with pytest.raises(ConstructError, match="must have one FinalExport, got: a second one, 'Second'"):
        tier.gate(id="Second")


@pytest.mark.parametrize("elsewhere", ["sibling", "nested"])
def test_a_gate_in_another_stack_than_its_file_system_is_refused(stack: Stack, elsewhere: str) -> None:
    tier = Tier(stack)
    other = Stack(Stage.of(stack), "Other") if elsewhere == "sibling" else NestedStack(stack, "Other")
    with pytest.raises(ConstructError, match="must be in one stack, got: the file system in Test, the FinalExport in"):
        FinalExport(other, "Gate", file_system=tier.file_system, data_lake=tier.lake, job_name="one")


def test_a_link_in_another_stack_than_its_gate_is_refused(stack: Stack) -> None:
    tier = Tier(stack)
    tier.stack = Stack(Stage.of(stack), "Other", env=Environment(region="us-east-1"))
    tier.link("/models", "models/", [], [])
    with pytest.raises(ConstructError, match="the file system in Test, the link of /models in Other"):
        FinalExport(stack, "Gate", file_system=tier.file_system, data_lake=tier.lake, job_name="one")


def test_disposable_paths_are_linked_ones(stack: Stack) -> None:
    with pytest.raises(ConstructError, match=r"must name linked paths \(/datasets, /checkpoints, /logs\), got: '/tmp'"):
        Tier(stack).gate(disposable_paths=["/tmp"])  # noqa: S108 - a path on the file system


def test_disposable_paths_are_a_list(stack: Stack) -> None:
    with pytest.raises(ConstructError, match="must be a list"):
        Tier(stack).gate(disposable_paths="/checkpoints")


@pytest.mark.parametrize("prefix", ["reports/", "logs/other/", "logs/default"])
def test_reports_go_where_fsx_writes_them(stack: Stack, prefix: str) -> None:
    with pytest.raises(ConstructError, match="report_prefix must"):
        Tier(stack).gate(report_prefix=prefix)


@pytest.mark.parametrize(("links", "prefix"), [(LINKS[:2], "checkpoints/default/"), ((), "logs/default/")])
def test_without_linked_logs_reports_lie_under_the_first_writable_link(
    stack: Stack, links: tuple[tuple[str, str, list[str], list[str]], ...], prefix: str
) -> None:
    assert Tier(stack, links=links).gate().report_prefix == f"{prefix}final-export/"


@pytest.mark.parametrize("limit", [Duration.minutes(56), Duration.seconds(90)])
def test_a_time_limit_fits_a_custom_resource(stack: Stack, limit: Duration) -> None:
    with pytest.raises(ConstructError, match="time_limit must be more than 3 times poll_interval and at most 55 min"):
        Tier(stack).gate(time_limit=limit)


def test_a_metric_period_is_a_second_or_more(stack: Stack) -> None:
    with pytest.raises(ConstructError, match="metric_period must be at least a second"):
        Tier(stack).gate(metric_period=Duration.seconds(0))


@pytest.mark.parametrize(
    ("path", "value"), [("/checkpoints", "/checkpoints"), ("/my runs", "/my runs"), ("/runs(1)", None)]
)
def test_the_file_system_says_itself_what_of_it_is_exported(
    stack: Stack, resources: Synthesize, path: str, value: str | None
) -> None:
    Tier(stack, links=(LINKS[0], (path, "checkpoints/default/", [], []))).gate()
    [system] = resources(stack).of_type("AWS::FSx::FileSystem").values()
    tags = {tag["Key"]: tag["Value"] for tag in system["Properties"]["Tags"]}
    assert tags.get("training-storage:exported-paths") == value


def test_its_functions_have_the_memory_that_they_need(stack: Stack, resources: Synthesize) -> None:
    gate = Tier(stack).gate()
    functions = resources(stack).of_type("AWS::Lambda::Function")
    ours = [f["Properties"] for f in functions.values() if f["Properties"]["Handler"].startswith("final_export.")]
    assert len(ours) == len(gate.functions)
    assert {function["MemorySize"] for function in ours} == {256}
