"""What the examples promise in their READMEs is in their templates."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.examples.example_apps import APPS, ROOT, build, example, module, settings
from training_storage.testing import lint_findings

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

TIMES = "TIME_TO_LIVE_HOURS"


def object_paths(resources: list[Any]) -> list[str]:
    """The part of object ARNs after the bucket."""
    return [str(one["Fn::Join"][1][-1]) if isinstance(one, dict) else one.partition("/")[2] for one in resources]


@pytest.mark.parametrize("name", APPS)
def test_cdk_nag_and_the_storage_rules_find_nothing(name: str) -> None:
    assert [str(finding) for finding in example(name).findings] == []


@pytest.mark.parametrize("name", APPS)
def test_no_example_acknowledges_a_whole_rule_of_cdk_nag(name: str) -> None:
    text = (ROOT / "examples" / name / "app.py").read_text(encoding="utf-8")
    assert text.count("AwsSolutions") == text.count("AwsSolutions-IAM5[Resource::{objects}]")


@pytest.mark.parametrize("name", APPS)
def test_cfn_lint_finds_nothing(name: str) -> None:
    assert [str(finding) for finding in lint_findings(example(name).app)] == []


@pytest.mark.parametrize("name", APPS)
def test_the_feature_flags_are_those_that_the_library_is_tested_with(name: str) -> None:
    def flags(context: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in context.items() if key.startswith("@aws-cdk")}

    ours = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    assert flags(settings(name)["context"]) == flags(ours)


@pytest.mark.parametrize("name", APPS)
def test_what_an_app_reads_of_its_context_is_in_its_cdk_json_and_nothing_else(name: str) -> None:
    text = (ROOT / "examples" / name / "app.py").read_text(encoding="utf-8")
    given = {key for key in settings(name)["context"] if not key.startswith("@aws-cdk")}
    assert {key for key in given if f'("{key}")' in text} == given
    assert text.count('get_context("') + text.count('given("') == len(given)


def test_the_lake_moves_and_keeps_what_its_readme_says() -> None:
    bucket = example("data_lake").of_type("ResearchLake", "AWS::S3::Bucket")
    (rules,) = [
        {rule["Id"]: rule for rule in one["Properties"]["LifecycleConfiguration"]["Rules"]}
        for one in bucket.values()
        if "BucketName" in one["Properties"]
    ]
    raw, datasets = rules["raw"], rules["datasets"]
    assert raw["Transitions"] == [{"StorageClass": "STANDARD_IA", "TransitionInDays": 30}]
    assert datasets["NoncurrentVersionExpiration"] == {"NoncurrentDays": 90}
    assert {one["DeletionPolicy"] for one in bucket.values()} == {"RetainExceptOnCreate"}


def test_the_writer_of_the_lake_reaches_no_weights_and_the_reader_changes_nothing() -> None:
    lake = example("data_lake")
    writer, reader = (lake.actions("ResearchLake", sid_of=role) for role in ("Writer", "Reader"))
    assert sorted(object_paths(writer["s3:PutObject"])) == ["/datasets/*", "/raw/*"]
    assert sorted(object_paths(reader["s3:GetObject"])) == ["/datasets/*", "/models/*"]
    assert not [action for action in reader if "Put" in action or "Delete" in action]


def test_one_link_only_imports_and_the_other_is_exported_by_the_gate() -> None:
    lustre = example("lustre_two_links")
    links = {
        link["Properties"]["FileSystemPath"]: link
        for link in lustre.of_type("SpeechFileSystem", "AWS::FSx::DataRepositoryAssociation").values()
    }
    assert links["/datasets"]["Properties"]["S3"] == {"AutoImportPolicy": {"Events": ["NEW", "CHANGED", "DELETED"]}}
    assert "S3" not in links["/checkpoints"]["Properties"]
    gate = lustre.one("SpeechFileSystem", "Custom::FinalExport")
    assert gate["Properties"]["Links"] == [
        {"Path": "/datasets", "Exported": "false"},
        {"Path": "/checkpoints", "Exported": "true"},
    ]
    assert {link["DeletionPolicy"] for link in links.values()} == {"Retain"}


def test_the_file_system_is_in_the_subnet_of_the_caller_and_is_of_the_size_that_the_readme_prices() -> None:
    system = example("lustre_two_links").one("SpeechFileSystem", "AWS::FSx::FileSystem")["Properties"]
    app = module("lustre_two_links")
    assert system["SubnetIds"] == [settings("lustre_two_links")["context"]["subnet_id"]]
    assert system["StorageCapacity"] == app.STORAGE_CAPACITY_GIB
    assert system["LustreConfiguration"]["PerUnitStorageThroughput"] == app.PER_UNIT_STORAGE_THROUGHPUT
    assert system["LustreConfiguration"]["DeploymentType"] == "PERSISTENT_2"


def test_the_directory_bucket_is_in_the_zone_of_the_nodes_and_reached_over_their_route_table() -> None:
    express, given = example("express_beside_batch"), settings("express_beside_batch")["context"]
    assert (
        express.one("FastCheckpoints", "AWS::S3Express::DirectoryBucket")["Properties"]["LocationName"]
        == (given["zone_id"])
    )
    endpoint = express.one("FastCheckpoints", "AWS::EC2::VPCEndpoint")["Properties"]
    assert endpoint["VpcEndpointType"] == "Gateway"
    assert "s3express" in json.dumps(endpoint["ServiceName"])
    assert (endpoint["VpcId"], endpoint["RouteTableIds"]) == (given["vpc_id"], [given["route_table_id"]])


def test_the_job_role_writes_checkpoints_until_the_gate_has_to_go_and_only_reads_the_lake() -> None:
    express = example("express_beside_batch")
    policies = express.of_type("FastCheckpoints", "AWS::IAM::Policy")
    (writing,) = [policy for name, policy in policies.items() if name.startswith("Writing")]
    assert writing["Properties"]["Roles"] == ["BatchJob"]
    (gate,) = express.of_type("FastCheckpoints", "Custom::ExpressGate")
    assert gate in writing["DependsOn"]
    of_role = [policy for policy in policies.values() if policy["Properties"]["Roles"] == ["BatchJob"]]
    actions = json.dumps([policy["Properties"]["PolicyDocument"] for policy in of_role])
    assert "s3express:CreateSession" in actions
    assert "s3:PutObject" not in actions
    assert "s3:DeleteObject" not in actions


def test_a_checkpoint_is_archived_every_hour() -> None:
    express = example("express_beside_batch")
    (function,) = [
        one["Properties"]
        for one in express.of_type("FastCheckpoints", "AWS::Lambda::Function").values()
        if "PRUNE" in one["Properties"].get("Environment", {}).get("Variables", {})
    ]
    assert function["Environment"]["Variables"]["DURABLE_INTERVAL_MINUTES"] == "60"
    schedule = express.one("FastCheckpoints", "AWS::Scheduler::Schedule")["Properties"]
    assert schedule["ScheduleExpression"] == "rate(15 minutes)"
    assert schedule.get("State", "ENABLED") == "ENABLED"


def test_every_alarm_of_the_whole_reaches_an_address_through_an_encrypted_topic() -> None:
    pcs = example("pcs")
    (topic,) = pcs.of_type("TrainingStorage-llm", "AWS::SNS::Topic")
    alarms = pcs.of_type("TrainingStorage-llm", "AWS::CloudWatch::Alarm")
    assert len(alarms) >= 6
    assert [alarm["Properties"]["AlarmActions"] for alarm in alarms.values()] == [[{"Ref": topic}]] * len(alarms)
    key = pcs.one("TrainingStorage-llm", "AWS::KMS::Key")["Properties"]["KeyPolicy"]["Statement"]
    assert "cloudwatch.amazonaws.com" in json.dumps(key)
    assert "KmsMasterKeyId" in pcs.one("TrainingStorage-llm", "AWS::SNS::Topic")["Properties"]
    subscription = pcs.one("TrainingStorage-llm", "AWS::SNS::Subscription")["Properties"]
    assert subscription["Endpoint"] == settings("pcs")["context"]["alarm_email"]


def test_what_parks_the_whole_may_publish_to_its_encrypted_topic() -> None:
    # Without the key it could not warn, and what cannot warn does not park.
    pcs = example("pcs")
    (key,) = pcs.of_type("TrainingStorage-llm", "AWS::KMS::Key")
    publishing = {
        name: json.dumps(policy)
        for name, policy in pcs.of_type("TrainingStorage-llm", "AWS::IAM::Policy").items()
        if "sns:Publish" in json.dumps(policy)
    }
    assert len(publishing) == 2
    for text in publishing.values():
        assert "kms:GenerateDataKey" in text
        assert key in text


def test_the_whole_is_a_slurm_cluster_that_ends_by_itself() -> None:
    pcs = example("pcs")
    assert pcs.one("TrainingStorage-llm", "AWS::PCS::Cluster")["Properties"]["Scheduler"]["Type"] == "SLURM"
    counts = [
        group["Properties"]["ScalingConfiguration"]
        for group in pcs.of_type("TrainingStorage-llm", "AWS::PCS::ComputeNodeGroup").values()
    ]
    assert {"MinInstanceCount": 0, "MaxInstanceCount": 64} in counts
    times = [
        one["Properties"]["Environment"]["Variables"][TIMES]
        for one in pcs.of_type("TrainingStorage-llm", "AWS::Lambda::Function").values()
        if TIMES in one["Properties"].get("Environment", {}).get("Variables", {})
    ]
    assert times == [str(module("pcs").TIME_TO_LIVE_HOURS)]


def test_three_jobs_write_into_folders_of_their_own() -> None:
    three = example("three_jobs")
    assert list(three.templates) == [
        "SharedLake",
        "TrainingStorage-finetune",
        "TrainingStorage-images",
        "TrainingStorage-pretrain",
    ]
    written: dict[str, set[str]] = {}
    for stack in list(three.templates)[1:]:
        policies = three.actions(stack, sid_of="Storage")
        written[stack] = {
            path
            for path in object_paths([one for one in policies["s3:PutObject"] if isinstance(one, dict)])
            if path.startswith("/")
        }
        job = stack.removeprefix("TrainingStorage-")
        assert f"/checkpoints/{job}/*" in written[stack]
        assert all(f"/{job}/" in path for path in written[stack])


def test_the_shared_lake_is_the_same_without_any_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shared = example("three_jobs").templates["SharedLake"]
    monkeypatch.setattr(module("three_jobs"), "plans", lambda **_: [])
    (lake,) = build("three_jobs", tmp_path).synth().stacks
    assert lake.template == shared


def test_the_reviewed_plan_is_deployed_as_it_stands() -> None:
    plan = json.loads(module("three_jobs").PRETRAIN_PLAN.read_text(encoding="utf-8"))["fsx_lustre"]
    system = example("three_jobs").one("TrainingStorage-pretrain", "AWS::FSx::FileSystem")["Properties"]
    assert system["StorageCapacity"] == plan["storage_capacity_gib"]
    assert system["LustreConfiguration"]["PerUnitStorageThroughput"] == plan["per_unit_storage_throughput"]


def test_the_readme_of_the_whole_says_when_it_ends() -> None:
    days = module("pcs").TIME_TO_LIVE_HOURS // 24
    assert f"after {days} days" in (ROOT / "examples" / "pcs" / "README.md").read_text(encoding="utf-8")
