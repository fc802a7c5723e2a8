"""The state machine that parks a job, what it may do, and when it starts by itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns

from training_storage import ConstructError, ImportedDataLake, TrainingJob, TrainingStorage, plan_storage
from training_storage.operations.park_state import WARNING_STATES
from training_storage.park import Park
from training_storage.testing import compliance_findings, lint_findings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aws_cdk import CfnElement

TOPIC = "arn:aws:sns:us-east-1:111122223333:alarms"
KEY = "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def storage(
    app: App,
    *,
    engine: str | None = None,
    time_to_live_hours: int | None = None,
    idle_park_hours: int | None = None,
    topic: Callable[[Stack], sns.ITopic] = lambda stack: sns.Topic.from_topic_arn(stack, "Topic", TOPIC),
    **fields: Any,
) -> TrainingStorage:
    """Make the storage of a job, which has a park of its own."""
    plan = plan_storage(TrainingJob(**{"instances": 32, "name": "alpha", **fields}))
    stack = Stack(app, "Job", env=Environment(region=plan.region))
    lake = ImportedDataLake(stack, "Lake", bucket_name="lake-1", encryption_key_arn=KEY)
    return TrainingStorage(
        stack,
        "Storage",
        plan=plan,
        data_lake=lake,
        engine=engine,
        alarm_topic=topic(stack),
        time_to_live_hours=time_to_live_hours,
        idle_park_hours=idle_park_hours,
    )


def another(made: TrainingStorage, *, topic: bool = True, **options: Any) -> Park:
    """Make a park as somebody would who composes the constructs."""
    return Park(
        made,
        "Another",
        cluster=made.cluster,
        job_name=made.job_name,
        file_system=made.file_system,
        final_export=made.final_export,
        express_gate=made.express_gate,
        alarm_topic=sns.Topic.from_topic_arn(made, "OtherTopic", TOPIC) if topic else None,
        **options,
    )


def synthesize(made: TrainingStorage) -> dict[str, Any]:
    template: dict[str, Any] = made.node.root.synth().get_stack_by_name("Job").template  # type: ignore[attr-defined]
    return template


def of_park(template: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [
        resource["Properties"]
        for name, resource in template["Resources"].items()
        if name.startswith("StoragePark") and resource["Type"] == kind
    ]


def states(template: dict[str, Any]) -> dict[str, Any]:
    [machine] = of_park(template, "AWS::StepFunctions::StateMachine")
    text = machine["DefinitionString"]
    text = "".join(part if isinstance(part, str) else "X" for part in text["Fn::Join"][1])
    found: dict[str, Any] = json.loads(text)["States"]
    return found


def statements(template: dict[str, Any], role: str) -> list[dict[str, Any]]:
    """Statements of the policies of one of park's roles."""
    return [
        statement
        for policy in of_park(template, "AWS::IAM::Policy")
        if any(str(one.get("Ref")).startswith(f"StoragePark{role}") for one in policy["Roles"])
        for statement in policy["PolicyDocument"]["Statement"]
    ]


def path(found: dict[str, Any], start: str) -> list[str]:
    """The states in which a park goes on when every step is done at once."""
    seen: list[str] = []
    name: str | None = start
    while name:
        seen.append(name)
        state = found[name]
        done = [rule["Next"] for rule in state.get("Choices", []) if rule.get("StringEquals") == "DONE"]
        done += [rule["Next"] for rule in state.get("Choices", []) if rule.get("BooleanEquals") is True]
        name = done[0] if done else state.get("Next")
    return [name for name in seen if not name.endswith("?")]


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    return synthesize(storage(App(), time_to_live_hours=24, idle_park_hours=6))


def test_it_drains_unmounts_exports_and_deletes_the_stack_last(whole: dict[str, Any]) -> None:
    found = states(whole)
    assert found["Trigger"]["Default"] == "Begin"
    assert path(found, "Begin") == ["Begin", "Drain", "Unmount", "Export", "DeleteStack", "Parked"]


def test_it_warns_and_waits_an_hour_before_it_begins_by_itself(whole: dict[str, Any]) -> None:
    found = states(whole)
    way = path(found, "Warn")
    assert way[:4] == ["Warn", "Warned", "StillDue", "Begin"]
    assert found["Warned"]["Seconds"] == 3600
    before = [name for name in found if name.startswith(("Trigger", "Warn", "StillDue"))]
    assert sorted(before) == sorted(WARNING_STATES)


def test_every_step_is_repeated_when_it_breaks_down_and_tells_when_it_refuses(whole: dict[str, Any]) -> None:
    found = states(whole)
    for name, state in found.items():
        if state["Type"] == "Task":
            assert state["Retry"][0]["ErrorEquals"] == ["States.ALL"], name
        if state["Type"] == "Task" and name != "Tell":
            assert state["Catch"][0]["Next"] == "Tell", name
        if state["Type"] == "Choice" and name != "Trigger":
            assert state["Default"] == "Tell", name
    assert path(found, "Tell") == ["Tell", "Failed"]
    # Where not even that works, the execution says where the reason is.
    assert found[found["Tell"]["Catch"][0]["Next"]]["Cause"].startswith("park stopped, and the step that says why")


def test_taking_back_restores_exports_before_nodes_may_start(whole: dict[str, Any]) -> None:
    found = states(whole)
    assert path(found, "Restore") == ["Restore", "Undo", "Undone"]


def test_a_step_that_was_stopped_has_ended_before_its_work_is_taken_back(whole: dict[str, Any]) -> None:
    found = states(whole)
    first, second = found["Trigger"]["Choices"][:2]
    assert "$.Stopped" in json.dumps(first)
    assert (first["Next"], second["Next"]) == ("Settle", "Restore")
    assert path(found, "Settle") == ["Settle", "Restore", "Undo", "Undone"]
    timeouts = [function["Timeout"] for function in of_park(whole, "AWS::Lambda::Function")]
    assert found["Settle"]["Seconds"] >= max(timeouts)


def test_a_directory_bucket_is_saved_and_emptied_by_its_own_gate() -> None:
    made = storage(App(), instances=600, interface="object")
    assert made.express_gate
    template = synthesize(made)
    found = states(template)
    assert path(found, "Begin") == ["Begin", "Drain", "Express", "DeleteStack", "Parked"]
    assert found["Express"]["Parameters"] == {"RequestType": "Delete"}


def test_nothing_starts_by_itself_unless_a_time_is_given() -> None:
    made = storage(App())
    assert made.park.watch is None
    template = synthesize(made)
    assert of_park(template, "AWS::Events::Rule") == []
    assert "Warn" not in states(template)


def _made(stack: Stack) -> sns.ITopic:
    return sns.Topic(stack, "Topic", master_key=kms.Key(stack, "TopicKey"))


def _imported(stack: Stack) -> sns.ITopic:
    return sns.Topic.from_topic_attributes(stack, "Topic", topic_arn=TOPIC, key_arn=KEY)


@pytest.mark.parametrize("imported", [False, True], ids=["of-the-app", "imported"])
def test_what_publishes_to_an_encrypted_topic_may_use_its_key(imported: bool) -> None:
    made = storage(App(), time_to_live_hours=24, topic=_imported if imported else _made)
    policies = synthesize(made)["Resources"].values()
    may_use_key = {
        role["Ref"]
        for policy in policies
        if policy["Type"] == "AWS::IAM::Policy"
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        if set(statement["Action"]) == {"kms:Decrypt", "kms:GenerateDataKey"}
        for role in policy["Properties"]["Roles"]
    }
    assert made.park.watch_role is not None
    stack = Stack.of(made)
    for role in (made.park.role, made.park.watch_role):
        assert stack.get_logical_id(cast("CfnElement", role.node.default_child)) in may_use_key


def test_the_cluster_function_names_its_stack_its_groups_and_its_topic(whole: dict[str, Any]) -> None:
    found = {statement["Sid"]: statement for statement in statements(whole, "Role")}
    assert found["OwnStack"]["Resource"] == {"Ref": "AWS::StackId"}
    assert sorted(found["OwnStack"]["Action"]) == ["cloudformation:DeleteStack", "cloudformation:DescribeStacks"]
    assert found["Topic"]["Resource"] == TOPIC
    limits = found["NodeLimits"]
    assert sorted(limits["Action"]) == ["pcs:GetComputeNodeGroup", "pcs:UpdateComputeNodeGroup"]
    assert all(set(resource) == {"Fn::GetAtt"} for resource in limits["Resource"])
    [condition] = found["EndNodes"]["Condition"]["StringEquals"].values()
    assert len(condition) == 2
    assert found["PcsStartsNodes"]["Condition"]["ArnEquals"]["ec2:LaunchTemplate"]
    assert not any("fsx:" in json.dumps(statement) for statement in found.values())


def test_the_auto_scaling_group_is_named() -> None:
    made = storage(App(), engine="ec2")
    found = {statement["Sid"]: statement for statement in statements(synthesize(made), "Role")}
    assert "autoScalingGroupName/" in json.dumps(found["NodeLimits"]["Resource"])
    assert found["NodeLimits"]["Action"] == "autoscaling:UpdateAutoScalingGroup"


def test_of_a_launch_template_nothing_that_gives_rights_can_be_overridden(whole: dict[str, Any]) -> None:
    found = {statement["Sid"]: statement for statement in statements(whole, "Role")}
    start = found["PcsStartsNodes"]
    assert "security-group" not in json.dumps(start["Resource"])
    assert start["Resource"] != "*"
    fixed = found["PcsStartsNodesAsTheTemplateSays"]
    assert fixed["Condition"]["Bool"] == {"ec2:IsLaunchTemplateResource": "true"}
    assert "security-group/*" in json.dumps(fixed["Resource"])
    assert "key-pair/*" in json.dumps(fixed["Resource"])
    subnet = found["PcsStartsNodesHere"]["Resource"]
    assert "subnet/" in json.dumps(subnet)
    assert "*" not in json.dumps(subnet)


def test_the_export_has_the_rights_of_the_gate_and_no_others(whole: dict[str, Any]) -> None:
    [export] = [
        function
        for function in of_park(whole, "AWS::Lambda::Function")
        if function["Handler"].endswith("park_function.export")
    ]
    assert export["Role"]["Fn::GetAtt"][0].startswith("StorageFinalExportRole")


def test_the_watch_starts_its_own_machine_only(whole: dict[str, Any]) -> None:
    found = {statement["Sid"]: statement for statement in statements(whole, "WatchRole")}
    assert json.dumps(found["OwnMachine"]["Resource"]).count("stateMachine:training-storage-park-alpha") == 1
    assert set(found) == {"OwnLog", "OwnStack", "OwnMachine", "MetricsAndNodes", "Topic"}


def test_the_file_system_says_what_of_it_is_exported(whole: dict[str, Any]) -> None:
    [system] = [one for one in whole["Resources"].values() if one["Type"] == "AWS::FSx::FileSystem"]
    tags = {tag["Key"]: tag["Value"] for tag in system["Properties"]["Tags"]}
    assert "/checkpoints" in tags["training-storage:exported-paths"].split()
    assert "/datasets" not in tags["training-storage:exported-paths"].split()


def test_logs_end_with_the_stack_and_are_kept_for_a_time(whole: dict[str, Any]) -> None:
    groups = of_park(whole, "AWS::Logs::LogGroup")
    assert len(groups) == 3
    assert {group["RetentionInDays"] for group in groups} == {90}
    [machine] = of_park(whole, "AWS::StepFunctions::StateMachine")
    assert machine["LoggingConfiguration"]["Level"] == "ALL"
    assert machine["TracingConfiguration"] == {"Enabled": True}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["pcs", "ec2"])
def test_linter_and_nag_find_nothing(tmp_path: Path, engine: str) -> None:
    app = App(outdir=str(tmp_path))
    storage(
        app,
        engine=engine,
        instances=1200,
        interface="object",
        checkpoint_interface="posix",
        time_to_live_hours=24,
        idle_park_hours=6,
    )
    assert [str(finding) for finding in compliance_findings(app, linter=False) if "Park" in finding.path] == []
    assert lint_findings(app) == ()


def test_nag_would_find_what_is_not_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training_storage.park.acknowledge_wildcards", lambda *_, **__: None)
    app = App(outdir=str(tmp_path))
    storage(app)
    assert any("Park" in finding.path for finding in compliance_findings(app, linter=False))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"time_to_live_hours": 0}, "time_to_live_hours must be"),
        ({"idle_park_hours": "6"}, "idle_park_hours must be"),
        ({"time_to_live_hours": 24, "topic": False}, "time_to_live_hours must be given with an alarm topic"),
        (
            {"idle_park_hours": 2, "checkpoint_interval_minutes": 41.0},
            "idle_park_hours must be at least 3, got: 2; a checkpoint comes every 41 minutes",
        ),
        ({"idle_park_hours": 6, "topic": False}, "idle_park_hours must be given with an alarm topic"),
    ],
)
def test_times_that_make_no_sense_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConstructError, match=words):
        another(storage(App()), **options)


def test_use_is_not_watched_where_nothing_measures_it() -> None:
    with pytest.raises(ConstructError, match="idle_park_hours must be left out without fsx-lustre, got: 6"):
        another(storage(App(), instances=600, interface="object"), idle_park_hours=6)


def test_half_a_file_system_is_refused() -> None:
    made = storage(App())
    with pytest.raises(ConstructError, match="file_system and final_export must be given together"):
        Park(made, "Another", cluster=made.cluster, job_name="alpha", file_system=made.file_system)
