"""What CDK and cfn-lint accept and AWS refuses is refused everywhere: by constructs, check, plans and the plugin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cfnlint
import pytest
from aws_cdk import Acknowledgment, App, CfnResource, Environment, NestedStack, Stack, Validations
from aws_cdk import aws_ec2 as ec2

from training_storage import ConstructError, DataLake, DataRepositoryAssociation, DirectoryBucket, LustreFileSystem
from training_storage.planning import InvalidPlanError, StoragePlan, TrainingJob, catalog, plan_storage
from training_storage.planning.catalog.limits import hyperpod_regions
from training_storage.planning.catalog.stateful import resource_types
from training_storage.planning.guard import compare_templates
from training_storage.planning.legality import check_template, rules
from training_storage.testing.assertions import assert_nothing_lost
from training_storage.validation_plugin import StorageLegalityChecks

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMAS = Path(cfnlint.__file__).parent / "data" / "schemas"

WRONG_SYSTEM: dict[str, Any] = {
    "Type": "AWS::FSx::FileSystem",
    "Properties": {
        "FileSystemType": "LUSTRE",
        "FileSystemTypeVersion": "2.15",
        "StorageCapacity": 1300,
        "SubnetIds": ["subnet-1"],
        "LustreConfiguration": {
            "DeploymentType": "PERSISTENT_2",
            "PerUnitStorageThroughput": 300,
            "MetadataConfiguration": {"Mode": "AUTOMATIC"},
        },
    },
}


def messages(**resources: Any) -> list[str]:
    return [found.finding.message for found in check_template({"Resources": resources}, region="us-east-1").findings]


@pytest.fixture
def stack() -> Stack:
    return Stack(App(), "Test", env=Environment(region="us-east-1"))


@pytest.fixture
def vpc(stack: Stack) -> ec2.Vpc:
    return ec2.Vpc(stack, "Vpc", max_azs=1)


def test_capacity_and_throughput_have_the_same_words_everywhere(stack: Stack, vpc: ec2.Vpc) -> None:
    expected = messages(Fs=WRONG_SYSTEM)
    assert len(expected) == 2
    with pytest.raises(ConstructError) as refused:
        LustreFileSystem(
            stack,
            "Fs",
            vpc=vpc,
            subnet=vpc.private_subnets[0],
            storage_capacity_gib=1300,
            per_unit_storage_throughput=300,
        )
    assert [finding.message for finding in refused.value.findings] == expected
    values = json.loads(plan_storage(TrainingJob(instances=64)).to_json())
    values["fsx_lustre"] |= {"storage_capacity_gib": 1300, "per_unit_storage_throughput": 300}
    with pytest.raises(InvalidPlanError) as edited:
        StoragePlan.from_json(json.dumps(values))
    assert expected[0] in str(edited.value)


def link(path: str, repository: str = "s3://b/a/") -> dict[str, Any]:
    properties = {"FileSystemId": "fs-0123456789abcdef0", "FileSystemPath": path, "DataRepositoryPath": repository}
    return {"Type": "AWS::FSx::DataRepositoryAssociation", "Properties": properties}


def test_links_have_the_same_words_everywhere(stack: Stack, vpc: ec2.Vpc) -> None:
    lake = DataLake(stack, "Lake")
    system = LustreFileSystem(
        stack,
        "Fs",
        vpc=vpc,
        subnet=vpc.private_subnets[0],
        storage_capacity_gib=1200,
        per_unit_storage_throughput=125,
    )

    def refusal(path: str, prefix: str) -> str:
        with pytest.raises(ConstructError) as refused:
            DataRepositoryAssociation(
                stack, f"No{path}", file_system=system, file_system_path=path, data_lake=lake, prefix=prefix
            )
        return str(refused.value)

    assert refusal("ns1/", "x/") == messages(L=link("ns1/"))[0]
    for number in range(8):
        DataRepositoryAssociation(
            stack, f"L{number}", file_system=system, file_system_path=f"/{number}", data_lake=lake, prefix=f"{number}/"
        )
    nine = {f"L{n}": link(f"/{n}", f"s3://b/{n}/") for n in range(9)}
    assert refusal("/8", "8/") == messages(**nine)[0]


def test_zone_names_have_the_same_words_everywhere(stack: Stack) -> None:
    properties = {"LocationName": "us-east-1a", "DataRedundancy": "SingleAvailabilityZone"}
    with pytest.raises(ConstructError) as refused:
        DirectoryBucket(stack, "Hot", zone_id="us-east-1a")
    assert [str(refused.value)] == messages(Hot={"Type": "AWS::S3Express::DirectoryBucket", "Properties": properties})


def report(folder: Path) -> list[dict[str, Any]]:
    plugins = json.loads((folder / "validation-report.json").read_text(encoding="utf-8"))["pluginReports"]
    return [violation for plugin in plugins for violation in plugin["violations"]]


def test_the_plugin_fails_the_synth_and_names_the_resource(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    stack = Stack(app, "Foreign", env=Environment(region="us-east-1"))
    CfnResource(stack, "Fs", type=WRONG_SYSTEM["Type"], properties=WRONG_SYSTEM["Properties"])
    Validations.of(app).add_plugins(StorageLegalityChecks())
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        app.synth()
    violations = report(tmp_path)
    assert [violation["description"] for violation in violations] == messages(Fs=WRONG_SYSTEM)
    place = violations[1]["violatingConstructs"][0]
    assert place["constructPath"] == "Foreign/Fs"
    assert place["cloudFormationResource"]["propertyPaths"] == ["Properties.StorageCapacity"]


def test_the_plugin_sees_nested_stacks_and_an_acknowledgement_counts_only_where_it_stands(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    stack = Stack(app, "Foreign", env=Environment(region="us-east-1"))
    for scope in (
        NestedStack(stack, "Tier"),
        NestedStack(stack, "Other"),
        Stack(app, "Third", env=Environment(region="us-east-1")),
    ):
        resource = CfnResource(scope, "Fs", type=WRONG_SYSTEM["Type"], properties=WRONG_SYSTEM["Properties"])
        if scope.node.id == "Tier":
            for rule in rules():
                note = Acknowledgment(id=f"training-storage::{rule}", reason="Only a test.")
                Validations.of(resource).acknowledge(note)
    Validations.of(app).add_plugins(StorageLegalityChecks())
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        app.synth()
    places = [place["constructPath"] for violation in report(tmp_path) for place in violation["violatingConstructs"]]
    assert set(places) == {"Foreign/Other/Fs", "Third/Fs"}


def test_the_plugin_lets_a_legal_app_pass(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    stack = Stack(app, "Foreign", env=Environment(region="us-east-1"))
    DirectoryBucket(stack, "Hot", zone_id="use1-az4", base_name="data")
    Validations.of(app).add_plugins(StorageLegalityChecks())
    app.synth()
    assert report(tmp_path) == []


def test_the_plugin_knows_the_region_of_each_stack(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    stack = Stack(app, "Foreign", env=Environment(region="eu-central-1"))
    properties = {"LocationName": "euc1-az1", "DataRedundancy": "SingleAvailabilityZone"}
    CfnResource(stack, "Hot", type="AWS::S3Express::DirectoryBucket", properties=properties)
    Validations.of(app).add_plugins(StorageLegalityChecks())
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        app.synth()
    assert [violation["ruleName"] for violation in report(tmp_path)] == ["express-zone-region"]


def schema(name: str) -> dict[str, Any]:
    provider = json.loads((SCHEMAS / "providers" / "us-east-1.json").read_text(encoding="utf-8"))
    file = provider[name].removesuffix(".json") + ".json"
    return dict(json.loads((SCHEMAS / "resources" / file).read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", sorted(resource_types()))
def test_what_replaces_a_resource_agrees_with_the_registry_schema(name: str) -> None:
    paths = {
        path.removeprefix("/properties/").replace("/", ".") for path in schema(name).get("createOnlyProperties", [])
    }
    assert set(resource_types()[name].create_only) == paths


@pytest.mark.parametrize("name", sorted(resource_types()))
def test_documented_replacements_name_properties_that_exist(name: str) -> None:
    properties = schema(name)["properties"]
    for path in (*resource_types()[name].replaced, *resource_types()[name].refused):
        assert path.split(".", maxsplit=1)[0] in properties


def test_an_update_of_this_app_loses_nothing_by_growth_and_is_named_by_throughput(
    synthesize: Callable[..., dict[str, Any]],
) -> None:
    before = synthesize(instances="256")["TrainingStorage"]
    assert_nothing_lost(before, before)
    after = json.loads(json.dumps(before))
    name, system = next((n, r) for n, r in after["Resources"].items() if r["Type"] == "AWS::FSx::FileSystem")
    system["Properties"]["StorageCapacity"] = 2 * system["Properties"]["StorageCapacity"]
    system["Properties"]["Tags"] = []
    assert_nothing_lost(before, after)
    system["Properties"]["LustreConfiguration"]["PerUnitStorageThroughput"] = 999
    losses = compare_templates(before, after)
    assert losses[0].logical_id == name
    assert losses[0].properties == ("LustreConfiguration.PerUnitStorageThroughput",)
    assert "stays outside the stack" in losses[0].message
    links = {n for n, r in before["Resources"].items() if r["Type"] == "AWS::FSx::DataRepositoryAssociation"}
    assert {loss.logical_id for loss in losses} == {name, *links}


def test_hyperpod_is_said_to_exist_exactly_where_the_registry_has_its_type() -> None:
    known = {path.stem for path in (SCHEMAS / "providers").glob("*.json")} & set(catalog.regions())
    there = {
        name
        for name in known
        if "AWS::SageMaker::Cluster" in json.loads((SCHEMAS / "providers" / f"{name}.json").read_text(encoding="utf-8"))
    }
    assert set(hyperpod_regions()) == there
