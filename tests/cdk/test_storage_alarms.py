"""The alarms: on series that exist, with thresholds of the plan, each with its runbook."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns

from tests.cdk.small_stacks import tiers
from training_storage import ConstructError, TrainingJob, plan_storage
from training_storage.functions.storage_watch import watch
from training_storage.planning.catalog.metrics import metric
from training_storage.planning.contract import METRIC_NAMESPACE
from training_storage.storage_alarms import RUNBOOKS, StorageAlarms
from training_storage.testing import assert_compliant, compliance_findings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cdk.conftest import Resources

ROOT = Path(__file__).resolve().parents[2]
DOCS = (ROOT / "docs" / "alarms.md").read_text(encoding="utf-8")
ALARM = "AWS::CloudWatch::Alarm"
PLAN = plan_storage(TrainingJob(instances=256))


def alarms(stack: Stack, vpc: ec2.IVpc, *, exports: bool = True, **arguments: Any) -> StorageAlarms:
    assert PLAN.fsx_lustre is not None
    made = tiers(stack, vpc, PLAN, exports=exports)
    return StorageAlarms(
        stack,
        "Alarms",
        **{
            "job_name": "llama",
            "file_system": made.file_system,
            "baseline_mb_per_s": PLAN.fsx_lustre.baseline_mb_per_s,
            **arguments,
        },
    )


@pytest.fixture
def properties(stack: Stack, vpc: ec2.Vpc, resources: Callable[[Stack], Resources]) -> Callable[..., dict[str, Any]]:
    """Properties of each alarm by its id."""

    def synthesized(**arguments: Any) -> dict[str, Any]:
        made = alarms(stack, vpc, **arguments)
        found = resources(stack).of_type(ALARM)
        return {
            name: found[stack.get_logical_id(alarm.node.default_child)]["Properties"]  # type: ignore[arg-type]
            for name, alarm in made.alarms.items()
        }

    return synthesized


def dimensions(alarm: dict[str, Any]) -> dict[str, Any]:
    return {one["Name"]: one["Value"] for one in alarm["Dimensions"]}


def a_reference(value: Any, part: str) -> bool:
    return set(value) == {"Ref"} and part in value["Ref"]


# ---- what fires when ----


def test_capacity_fires_when_less_than_15_percent_is_free(properties: Callable[..., dict[str, Any]]) -> None:
    alarm = properties()["Capacity"]
    assert PLAN.fsx_lustre is not None
    assert (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"]) == (
        "AWS/FSx",
        "FreeDataStorageCapacity",
        "Sum",
    )
    # One point for each storage target and minute: a longer period would add minutes up.
    assert alarm["Period"] == 60
    assert alarm["ComparisonOperator"] == "LessThanThreshold"
    assert alarm["Threshold"] == PLAN.fsx_lustre.storage_capacity_gib * 2**30 * 15 // 100
    assert list(dimensions(alarm)) == ["FileSystemId"]
    assert a_reference(dimensions(alarm)["FileSystemId"], "FileSystem")
    assert alarm["TreatMissingData"] == "ignore"


def test_throughput_fires_above_80_percent_of_the_baseline_for_15_minutes(
    properties: Callable[..., dict[str, Any]],
) -> None:
    alarm = properties()["Throughput"]
    assert PLAN.fsx_lustre is not None
    assert alarm["Threshold"] == pytest.approx(0.8 * PLAN.fsx_lustre.baseline_mb_per_s * 1e6)
    assert alarm["ComparisonOperator"] == "GreaterThanThreshold"
    series = {one["Id"]: one for one in alarm["Metrics"]}
    [total] = [one for one in alarm["Metrics"] if one.get("ReturnData")]
    assert total["Expression"] == "(read + written) / PERIOD(read)"
    for name, expected in (("read", "DataReadBytes"), ("written", "DataWriteBytes")):
        stat = series[name]["MetricStat"]
        assert (stat["Metric"]["Namespace"], stat["Metric"]["MetricName"]) == ("AWS/FSx", expected)
        assert [one["Name"] for one in stat["Metric"]["Dimensions"]] == ["FileSystemId"]
        assert stat["Stat"] == "Sum"
        assert stat["Period"] * alarm["EvaluationPeriods"] == 15 * 60
    assert alarm["DatapointsToAlarm"] == alarm["EvaluationPeriods"] == 3
    assert alarm["TreatMissingData"] == "notBreaching"


def test_a_backlog_of_exports_fires_after_an_hour(properties: Callable[..., dict[str, Any]]) -> None:
    alarm = properties()["ExportBacklog"]
    assert (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"]) == (
        "AWS/FSx",
        "AgeOfOldestQueuedMessage",
        "Maximum",
    )
    assert set(dimensions(alarm)) == {"FileSystemId", "Publisher"}
    assert dimensions(alarm)["Publisher"] == "AutoExport"
    assert (alarm["Threshold"], alarm["TreatMissingData"]) == (3600, "ignore")


def test_without_an_exporting_link_there_is_no_alarm_on_a_series_that_never_comes(
    properties: Callable[..., dict[str, Any]],
) -> None:
    made = properties(exports=False)
    assert "ExportBacklog" not in made
    assert "LinkMisconfigured" in made


def test_a_broken_link_fires_on_what_the_watch_publishes(properties: Callable[..., dict[str, Any]]) -> None:
    alarm = properties()["LinkMisconfigured"]
    assert (alarm["Namespace"], alarm["MetricName"]) == (watch.NAMESPACE, watch.LINK_MISCONFIGURED)
    assert (alarm["Statistic"], alarm["Threshold"], alarm["ComparisonOperator"]) == (
        "Maximum",
        0,
        "GreaterThanThreshold",
    )
    # Exactly the dimensions of the figure without a link's path.
    whole = watch.Observed(metric=watch.LINK_MISCONFIGURED, value=1)
    datum = watch._datum(watch.Watched(job="llama", file_system_id="fs-1"), whole)
    assert set(dimensions(alarm)) == {one["Name"] for one in datum["Dimensions"]}
    assert dimensions(alarm)["Job"] == "llama"


def test_a_failed_node_check_fires(properties: Callable[..., dict[str, Any]]) -> None:
    alarm = properties()["NodeCheckFailed"]
    assert (alarm["Namespace"], alarm["MetricName"]) == ("TrainingStorage", "NodeCheckFailed")
    assert dimensions(alarm) == {"Job": "llama"}
    assert (alarm["Threshold"], alarm["Statistic"], alarm["TreatMissingData"]) == (0, "Maximum", "notBreaching")


def seconds(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(min|s)?", text).groups()  # type: ignore[union-attr]
    return int(number) * {"min": 60, "s": 1, None: 1}[unit]


def test_one_bad_node_keeps_its_alarm_although_it_reports_at_uneven_times(
    properties: Callable[..., dict[str, Any]],
) -> None:
    timer = ROOT / "constructs/training_storage/node_kit/systemd/training-storage-recheck.timer"
    values = dict(re.findall(r"^(\w+)=(.+)$", timer.read_text(encoding="utf-8"), re.MULTILINE))
    # The longest time between two figures; systemd runs a timer up to a minute late (AccuracySec).
    gap = sum(seconds(values[name]) for name in ("OnUnitActiveSec", "RandomizedDelaySec")) + 60
    alarm = properties()["NodeCheckFailed"]
    assert alarm["DatapointsToAlarm"] == 1
    # Periods begin at full minutes of the clock, wherever the figures lie: the current one may have none yet.
    assert alarm["Period"] * (alarm["EvaluationPeriods"] - 1) >= gap


def test_a_failing_watch_fires_after_three_runs_and_a_silent_one_is_told(
    stack: Stack, properties: Callable[..., dict[str, Any]]
) -> None:
    alarm = properties(topic=sns.Topic(stack, "Topic"))["WatchFailing"]
    assert (alarm["Namespace"], alarm["MetricName"]) == ("AWS/Lambda", "Errors")
    assert a_reference(dimensions(alarm)["FunctionName"], "Watch")
    # A run may fall into the next period: one of four may be empty.
    assert (alarm["EvaluationPeriods"], alarm["DatapointsToAlarm"], alarm["Threshold"]) == (4, 3, 0)
    assert alarm["TreatMissingData"] == "missing"
    assert alarm["InsufficientDataActions"] == alarm["AlarmActions"]


def test_every_series_of_aws_has_the_dimensions_that_the_catalog_knows(
    properties: Callable[..., dict[str, Any]],
) -> None:
    known = {
        (one.namespace, one.name): set(one.dimensions)
        for one in map(
            metric, ("free-data-storage", "data-read", "data-written", "oldest-queued-export", "function-errors")
        )
    }
    seen = 0
    for alarm in properties().values():
        series = [one["MetricStat"]["Metric"] for one in alarm.get("Metrics", []) if "MetricStat" in one] or [alarm]
        for one in series:
            if one["Namespace"].startswith("AWS/"):
                seen += 1
                assert {dimension["Name"] for dimension in one["Dimensions"]} == known[
                    one["Namespace"], one["MetricName"]
                ]
    assert seen == len(known)


def test_dimensions_must_be_those_of_the_series() -> None:
    with pytest.raises(ValueError, match="AgeOfOldestQueuedMessage has the dimensions FileSystemId, Publisher, got"):
        metric("oldest-queued-export").dimension_values(VolumeId="fsvol-1")


def test_nodes_and_watch_publish_in_one_namespace() -> None:
    assert watch.NAMESPACE == METRIC_NAMESPACE


def test_thresholds_can_be_changed(properties: Callable[..., dict[str, Any]]) -> None:
    made = properties(
        capacity_percent=70,
        throughput_percent=50,
        throughput_minutes=30,
        export_age_minutes=10,
        watch_minutes=15,
    )
    assert PLAN.fsx_lustre is not None
    assert made["Capacity"]["Threshold"] == PLAN.fsx_lustre.storage_capacity_gib * 2**30 * 30 // 100
    assert made["Throughput"]["Threshold"] == pytest.approx(0.5 * PLAN.fsx_lustre.baseline_mb_per_s * 1e6)
    assert made["Throughput"]["EvaluationPeriods"] == 6
    assert made["ExportBacklog"]["Threshold"] == 600
    assert made["LinkMisconfigured"]["Period"] == 900
    assert "70 %" in made["Capacity"]["AlarmDescription"]
    assert "50 %" in made["Throughput"]["AlarmDescription"]


@pytest.mark.parametrize(
    ("argument", "value", "said"),
    [
        ("capacity_percent", 100, "capacity_percent must be a whole number from 1 to 99, got: 100"),
        ("throughput_percent", 0, "throughput_percent must be a whole number from 1 to 100, got: 0"),
        ("throughput_minutes", 7, "throughput_minutes must be .* in steps of 5, got: 7"),
        ("export_age_minutes", 0, "export_age_minutes must be a whole number, at least 1, got: 0"),
        ("watch_minutes", 61, "watch_minutes must be a whole number from 1 to 60, got: 61"),
        ("baseline_mb_per_s", None, "baseline_mb_per_s must be more than 0 with a file system, got: None"),
        ("baseline_mb_per_s", 0, "baseline_mb_per_s must be more than 0 with a file system, got: 0"),
    ],
)
def test_what_makes_no_sense_is_refused(stack: Stack, vpc: ec2.Vpc, argument: str, value: Any, said: str) -> None:
    with pytest.raises(ConstructError, match=said):
        alarms(stack, vpc, **{argument: value})


@pytest.mark.parametrize(
    ("region", "arn"),
    [
        ("us-east-1", "arn:aws:sns:eu-west-1:111122223333:alarms"),
        ("us-east-1", "arn:aws-cn:sns:us-east-1:111122223333:alarms"),
        ("cn-north-1", "arn:aws:sns:us-east-1:111122223333:alarms"),
        ("us-gov-west-1", "arn:aws-us-gov:sns:us-gov-east-1:111122223333:alarms"),
    ],
)
def test_a_topic_of_another_region_or_partition_is_refused_in_one_line(region: str, arn: str) -> None:
    stack = Stack(App(), "Test", env=Environment(region=region))
    topic = sns.Topic.from_topic_arn(stack, "Topic", arn)
    with pytest.raises(ConstructError, match=f"alarm_topic_arn must be a topic of {region} .*got: '{arn}'") as error:
        StorageAlarms(stack, "Alarms", job_name="default", topic=topic)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("account", ["111122223333", "444455556666"])
def test_a_topic_of_the_region_is_taken_whatever_its_account(stack: Stack, account: str) -> None:
    topic = sns.Topic.from_topic_arn(stack, "Topic", f"arn:aws:sns:us-east-1:{account}:alarms")
    assert set(StorageAlarms(stack, "Alarms", job_name="default", topic=topic).alarms) == {"NodeCheckFailed"}


def test_a_job_without_a_file_system_has_the_alarm_of_its_nodes_only(
    stack: Stack, resources: Callable[[Stack], Resources]
) -> None:
    made = StorageAlarms(stack, "Alarms", job_name="default")
    assert set(made.alarms) == {"NodeCheckFailed"}
    assert made.watch is None
    assert [one["Type"] for one in resources(stack).by_id.values()] == [ALARM]


# ---- who is told ----


def test_a_topic_is_told_of_every_alarm_and_of_its_end(stack: Stack, properties: Callable[..., dict[str, Any]]) -> None:
    key = kms.Key(stack, "TopicKey")
    topic = sns.Topic(stack, "Topic", master_key=key)
    for alarm in properties(topic=topic).values():
        assert [a_reference(one, "Topic") for one in alarm["AlarmActions"]] == [True]
        assert alarm["OKActions"] == alarm["AlarmActions"]


def test_without_a_topic_the_alarms_stand_without_actions(properties: Callable[..., dict[str, Any]]) -> None:
    made = properties()
    assert set(made) == set(RUNBOOKS)
    for alarm in made.values():
        assert not {"AlarmActions", "OKActions", "InsufficientDataActions"} & set(alarm)


# ---- what is said ----


def test_every_alarm_says_in_one_line_what_it_means_and_where_its_runbook_is(
    properties: Callable[..., dict[str, Any]],
) -> None:
    for name, alarm in properties().items():
        description = alarm["AlarmDescription"]
        assert description.startswith("Storage of job llama: ")
        assert description.endswith(f" Runbook: {RUNBOOKS[name].anchor}")
        assert "\n" not in description
        assert "{" not in description
        assert len(description) <= 1024  # CloudWatch takes no more


def test_every_alarm_has_a_runbook_in_the_docs_and_every_runbook_an_alarm() -> None:
    headings = re.findall(r"^## (.+)$", DOCS, re.MULTILINE)
    assert headings == [runbook.heading for runbook in RUNBOOKS.values()]
    for runbook, section in zip(RUNBOOKS.values(), DOCS.split("\n## ")[1:], strict=True):
        assert section.startswith(runbook.heading + "\n")
        assert re.search(r"^1\. ", section, re.MULTILINE), f"no step under {runbook.heading}"
    assert RUNBOOKS["Capacity"].anchor == "docs/alarms.md#the-file-system-is-filling-up"


def test_the_docs_name_every_alarm_and_the_defaults_of_the_code() -> None:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in DOCS.splitlines() if line.startswith("|")]
    assert {row[0] for row in rows[2:] if row[0]} == set(RUNBOOKS)
    documented = {row[2].strip("`"): int(row[3]) for row in rows[2:] if row[2]}
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(StorageAlarms.__init__).parameters.items()
        if isinstance(parameter.default, int)
    }
    assert documented == defaults


# ---- the watch ----


def test_the_watch_may_do_nothing_but_look_and_publish(
    stack: Stack, vpc: ec2.Vpc, resources: Callable[[Stack], Resources]
) -> None:
    alarms(stack, vpc)
    template = resources(stack)
    [policy] = [one for name, one in template.of_type("AWS::IAM::Policy").items() if "WatchRole" in name]
    by_action = {
        tuple([one["Action"]] if isinstance(one["Action"], str) else one["Action"]): one
        for one in policy["Properties"]["PolicyDocument"]["Statement"]
    }
    assert set(by_action) == {
        ("logs:CreateLogStream", "logs:PutLogEvents"),
        ("fsx:DescribeDataRepositoryAssociations",),
        ("cloudwatch:PutMetricData",),
    }
    assert by_action[("cloudwatch:PutMetricData",)]["Condition"] == {
        "StringEquals": {"cloudwatch:namespace": "TrainingStorage"}
    }
    assert "WatchLogs" in json.dumps(by_action[("logs:CreateLogStream", "logs:PutLogEvents")]["Resource"])
    [role] = [one for name, one in template.of_type("AWS::IAM::Role").items() if "WatchRole" in name]
    assert "ManagedPolicyArns" not in role["Properties"]


def test_the_watch_runs_every_few_minutes_keeps_its_log_and_is_not_repeated(
    stack: Stack, vpc: ec2.Vpc, resources: Callable[[Stack], Resources]
) -> None:
    alarms(stack, vpc, watch_minutes=1)
    template = resources(stack)
    assert template.one("AWS::Events::Rule")["Properties"]["ScheduleExpression"] == "rate(1 minute)"
    assert template.one("AWS::Lambda::EventInvokeConfig")["Properties"]["MaximumRetryAttempts"] == 0
    [function] = [one for name, one in template.of_type("AWS::Lambda::Function").items() if "AlarmsWatch" in name]
    assert set(function["Properties"]["Environment"]["Variables"]) == {"JOB", "FILE_SYSTEM_ID"}
    assert "WatchLogs" in json.dumps(function["Properties"]["LoggingConfig"])
    [log] = [one for name, one in template.of_type("AWS::Logs::LogGroup").items() if "WatchLogs" in name]
    assert log["Properties"]["RetentionInDays"] == 30
    module, handler = function["Properties"]["Handler"].split(".")
    assert (Path(watch.__file__).parent / f"{module}.py").exists()
    assert callable(getattr(watch, handler))


# ---- clean ----


def small_app(folder: Path) -> tuple[App, Stack, StorageAlarms]:
    flags = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    app = App(context=flags, outdir=str(folder))
    stack = Stack(app, "Alarms", env=Environment(region="us-east-1"))
    vpc = ec2.Vpc.from_vpc_attributes(
        stack,
        "Vpc",
        vpc_id="vpc-0123456789abcdef0",
        availability_zones=["use1-az4"],
        private_subnet_ids=["subnet-0123456789abcdef0"],
        private_subnet_route_table_ids=["rtb-0123456789abcdef0"],
    )
    topic = sns.Topic(stack, "Topic", enforce_ssl=True, master_key=kms.Key(stack, "Key", enable_key_rotation=True))
    return app, stack, alarms(stack, vpc, topic=topic)


@pytest.mark.slow
def test_cfn_lint_and_cdk_nag_find_nothing(tmp_path: Path) -> None:
    app, _, _ = small_app(tmp_path)
    assert_compliant(app, linter=True)


def test_cdk_nag_would_notice_another_wildcard_of_the_watch(tmp_path: Path) -> None:
    app, _, made = small_app(tmp_path)
    assert made.watch is not None
    assert isinstance(made.watch.role, iam.Role)
    made.watch.role.add_to_policy(iam.PolicyStatement(actions=["fsx:Delete*"], resources=["*"]))
    assert "AwsSolutions-IAM5[Action::fsx:Delete*]" in {found.rule for found in compliance_findings(app, linter=False)}
