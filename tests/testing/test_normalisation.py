"""A snapshot changes with the user's stack, not with CDK's release, the code of a function or the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App, Stack
from aws_cdk.assertions import Template

from tests.testing.conftest import HASH, LUSTRE, nested_app
from training_storage.testing import normalised

if TYPE_CHECKING:
    from training_storage.testing import Source

CHECKSUM = "f" * 64
DIGEST = "a" * 64
VERSION = "FunctionCurrentVersion1A2B3C4D" + "0123456789abcdef" * 2

WRITTEN_BY_CDK: dict[str, Any] = {
    "Parameters": {"BootstrapVersion": {"Type": "String", "Default": "/cdk-bootstrap/hnb659fds/version"}},
    "Rules": {"CheckBootstrapVersion": {"Assertions": []}},
    "Conditions": {"CDKMetadataAvailable": {"Fn::Equals": [{"Ref": "AWS::Region"}, "us-east-1"]}},
    "Resources": {
        "CDKMetadata": {"Type": "AWS::CDK::Metadata", "Condition": "CDKMetadataAvailable"},
        "Function": {
            "Type": "AWS::Lambda::Function",
            "Properties": {"Code": {"S3Bucket": "assets", "S3Key": f"{HASH}.zip"}},
            "Metadata": {"aws:cdk:path": "A/Function/Resource", "aws:asset:path": f"asset.{HASH}", "owner": "team-a"},
        },
        VERSION: {"Type": "AWS::Lambda::Version", "Properties": {"FunctionName": {"Ref": "Function"}}},
        "Alias": {
            "Type": "AWS::Lambda::Alias",
            "Properties": {"FunctionVersion": {"Fn::GetAtt": [VERSION, "Version"]}},
            "DependsOn": [VERSION],
        },
        "Nodes": {
            "Type": "AWS::EC2::LaunchTemplate",
            "Properties": {
                "UserData": {
                    "Fn::Join": [
                        "",
                        [
                            f"aws s3 cp s3://assets/{HASH}.zip kit.zip\n",
                            f"echo '{CHECKSUM}  client.rpm' | sha256sum --check\n",
                            f"docker pull repository@sha256:{DIGEST}\n",
                        ],
                    ]
                }
            },
        },
        "Task": {
            "Type": "AWS::ECS::TaskDefinition",
            "Properties": {
                "Image": {"Fn::Sub": "1.dkr.ecr/cdk-hnb659fds-container-assets-${AWS::AccountId}-r:" + HASH}
            },
        },
    },
}


def test_what_only_cdk_changes_is_left_out_or_masked() -> None:
    template = normalised(WRITTEN_BY_CDK)
    assert list(template) == ["Resources"]
    assert HASH not in json.dumps(template)
    resources = template["Resources"]
    assert list(resources) == ["Alias", "Function", "FunctionCurrentVersion1A2B3C4DASSET", "Nodes", "Task"]
    assert resources["Function"]["Properties"]["Code"]["S3Key"] == "ASSET.zip"
    assert resources["Alias"]["Properties"]["FunctionVersion"]["Fn::GetAtt"][0] == "FunctionCurrentVersion1A2B3C4DASSET"
    assert resources["Alias"]["DependsOn"] == ["FunctionCurrentVersion1A2B3C4DASSET"]
    assert resources["Task"]["Properties"]["Image"]["Fn::Sub"].endswith(":ASSET")


def test_what_people_wrote_stays() -> None:
    template = normalised(WRITTEN_BY_CDK)
    user_data = json.dumps(template["Resources"]["Nodes"])
    assert CHECKSUM in user_data
    assert DIGEST in user_data
    assert template["Resources"]["Function"]["Metadata"] == {"owner": "team-a"}


@pytest.mark.parametrize("section", ["Parameters", "Rules", "Conditions"])
def test_sections_keep_what_is_not_cdks(section: str) -> None:
    template = {**WRITTEN_BY_CDK, section: {**WRITTEN_BY_CDK[section], "Own": {"Type": "String"}}}
    assert normalised(template)[section] == {"Own": {"Type": "String"}}


def test_parameters_of_old_synthesizers_are_masked_and_stay_apart() -> None:
    names = [f"AssetParameters{character * 64}S3Bucket0A1B2C3D" for character in "ab"]
    template = {
        "Parameters": {name: {"Type": "String"} for name in names},
        "Resources": {"F": {"Type": "T", "Properties": [{"Ref": name} for name in names]}},
    }
    found = normalised(template)
    assert list(found["Parameters"]) == ["AssetParametersASSETS3Bucket", "AssetParametersASSETS3Bucket2"]
    assert [item["Ref"] for item in found["Resources"]["F"]["Properties"]] == list(found["Parameters"])


def test_twice_is_once_and_order_does_not_matter() -> None:
    once = normalised(WRITTEN_BY_CDK)
    assert normalised(once) == once
    turned = {**WRITTEN_BY_CDK, "Resources": dict(reversed(WRITTEN_BY_CDK["Resources"].items()))}
    assert json.dumps(normalised(turned)) == json.dumps(once)


def test_the_template_given_is_not_changed() -> None:
    before = json.dumps(WRITTEN_BY_CDK)
    normalised(WRITTEN_BY_CDK)
    assert json.dumps(WRITTEN_BY_CDK) == before


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> App:
    code = tmp_path_factory.mktemp("code")
    (code / "index.py").write_text("def handler(event, context):\n    return event\n", encoding="utf-8")
    return nested_app(tmp_path_factory.mktemp("app"), code)


@pytest.fixture(scope="module")
def expected(app: App) -> dict[str, Any]:
    return normalised(app)


def test_nested_stacks_stand_in_place_of_their_address(expected: dict[str, Any]) -> None:
    (nested,) = [one for one in expected["Resources"].values() if one["Type"] == "AWS::CloudFormation::Stack"]
    assert nested["Properties"]["TemplateURL"]["Resources"]["Lustre"]["Properties"]["StorageCapacity"] == 4800


@pytest.mark.parametrize("form", ["stack", "assembly", "folder", "folder as text", "file"])
def test_every_form_of_a_stack_gives_the_same(app: App, expected: dict[str, Any], form: str) -> None:
    folder = Path(app.outdir)
    forms: dict[str, Source] = {
        "stack": app.node.find_child("Job"),  # type: ignore[dict-item]  # CDK types it as any construct
        "assembly": app.synth(),
        "folder": folder,
        "folder as text": str(folder),
        "file": folder / "Job.template.json",
    }
    assert normalised(forms[form]) == expected


def test_a_template_alone_keeps_the_hash_of_a_nested_one_so_that_a_change_in_it_shows(
    app: App, expected: dict[str, Any]
) -> None:
    stack = app.node.find_child("Job")
    found = normalised(Template.from_stack(stack))  # type: ignore[arg-type]  # as above
    (logical_id,) = [key for key, one in found["Resources"].items() if one["Type"] == "AWS::CloudFormation::Stack"]
    url = json.dumps(found["Resources"].pop(logical_id)["Properties"]["TemplateURL"])
    assert "ASSET" not in url
    assert ".json" in url
    assert found["Resources"] == {key: one for key, one in expected["Resources"].items() if key != logical_id}


def test_a_nested_stack_by_itself_gives_its_own_template(app: App, expected: dict[str, Any]) -> None:
    nested = app.node.find_child("Job").node.find_child("Tier")
    found = normalised(nested)  # type: ignore[arg-type]  # as above
    assert list(found["Resources"]) == ["Lustre"]


def test_the_code_of_a_function_changes_no_snapshot(tmp_path: Path, asset: Path, expected: dict[str, Any]) -> None:
    (asset / "index.py").write_text("def handler(event, context):\n    return 'other'\n", encoding="utf-8")
    assert normalised(nested_app(tmp_path / "out", asset)) == expected


def test_a_change_in_a_nested_stack_changes_the_snapshot(tmp_path: Path, asset: Path, expected: dict[str, Any]) -> None:
    assert normalised(nested_app(tmp_path / "out", asset, capacity=7200)) != expected


@pytest.mark.parametrize(
    ("source", "kind", "message"),
    [
        (7, TypeError, "source must be a template, a Template, Stack, .*, got: int"),
        ("nowhere.json", ValueError, "a template must be a file that can be read, got: 'nowhere.json'"),
        (".", ValueError, "got: '.', a folder without manifest.json"),
    ],
)
def test_what_is_no_template_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Any, kind: type[Exception], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=message) as refused:
        normalised(source)
    assert "\n" not in str(refused.value)


def test_several_stacks_where_one_is_meant_are_refused_by_name(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    Stack(app, "Lake")
    Stack(app, "Job")
    with pytest.raises(ValueError, match=r"must hold one template, got: 2 \(Lake, Job\)"):
        normalised(app)


def test_a_file_in_yaml_is_read_as_well(tmp_path: Path) -> None:
    path = tmp_path / "template.yaml"
    path.write_text("Resources:\n  Fs:\n    Type: AWS::FSx::FileSystem\n", encoding="utf-8")
    assert normalised(path) == {"Resources": {"Fs": {"Type": "AWS::FSx::FileSystem"}}}
    path.write_text("- a list\n", encoding="utf-8")
    with pytest.raises(ValueError, match="source must be a CloudFormation template in JSON or YAML"):
        normalised(path)


def test_a_file_system_is_left_as_it_is() -> None:
    assert normalised({"Resources": {"Fs": LUSTRE}}) == {"Resources": {"Fs": LUSTRE}}
