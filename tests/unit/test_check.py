"""The verb `check`: exit codes, one line for what cannot be read, and every kind of file."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
import types
from typing import TYPE_CHECKING, Any

import pytest
import yaml  # type: ignore[import-untyped]
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from training_storage import cli
from training_storage.planning import TrainingJob, plan_storage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Check = Callable[..., tuple[int, str, str]]

BAD = {
    "Resources": {
        "Fs": {
            "Type": "AWS::FSx::FileSystem",
            "Properties": {
                "FileSystemType": "LUSTRE",
                "StorageCapacity": 1300,
                "SubnetIds": ["subnet-1"],
                "LustreConfiguration": {"DeploymentType": "SCRATCH_2"},
            },
        }
    }
}
GOOD = json.loads(json.dumps(BAD).replace("1300", "1200"))


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Check:
    """Run the verb on a text or a document; return exit code, stdout and stderr."""

    def run(content: Any, *options: str, name: str = "template.json") -> tuple[int, str, str]:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        code = cli.main(["check", str(path), *options])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def rules(answer: str) -> list[str]:
    return [entry["rule"] for entry in json.loads(answer)]


def test_a_clean_template_exits_0_and_says_so(check: Check) -> None:
    code, out, err = check(GOOD, "--region", "us-east-1")
    assert (code, out, err) == (0, "Nothing illegal in 1 file.\n", "")


def test_findings_exit_1_with_resource_property_rule_and_source(check: Check) -> None:
    code, out, _ = check(BAD)
    assert code == 1
    assert "Fs.Properties.StorageCapacity: storage_capacity_gib must be 1200 or a multiple of 2400 GiB" in out
    assert "[lustre-capacity; FSx API" in out


def test_json_is_a_list_of_exactly_four_keys(check: Check) -> None:
    code, out, _ = check(BAD, "--json")
    assert code == 1
    [entry] = json.loads(out)
    assert list(entry) == ["rule", "logical_id", "message", "source"]
    assert (entry["rule"], entry["logical_id"]) == ("lustre-capacity", "Fs")
    assert json.loads(check(GOOD, "--json")[1]) == []


def test_sarif_names_rules_places_and_what_was_not_checked(check: Check) -> None:
    code, out, err = check(BAD, "--sarif")
    assert (code, err) == (1, "")
    log = json.loads(out)
    [run] = log["runs"]
    assert log["version"] == "2.1.0"
    assert run["tool"]["driver"]["rules"][0]["id"] == run["results"][0]["ruleId"] == "lustre-capacity"
    place = run["results"][0]["locations"][0]
    assert place["logicalLocations"][0]["fullyQualifiedName"] == "Fs.Properties.StorageCapacity"
    assert place["physicalLocation"]["artifactLocation"]["uri"].endswith("template.json")
    notes = run["invocations"][0]["toolExecutionNotifications"]
    assert "Region" in notes[0]["message"]["text"]


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        ("{", "a.json", "no JSON"),
        ("", "a.yaml", "no mapping at its top"),
        ("[1]", "a.json", "no mapping"),
        ("a: [", "a.yaml", "neither JSON nor YAML"),
        ("a: b: c", "a.yml", "in line 1"),
        ("\x00", "a.yaml", "neither JSON nor YAML"),
        ('{"schema_version": 7}', "a.json", "schema_version"),
        ("{}", "a.json", "Resources"),
        ('{"Resources": 5}', "a.json", "Resources"),
        ('{"Resources": null}', "a.json", "Resources"),
        ('{"Resources": [1]}', "a.json", "Resources"),
        ('{"Resources": {"A": 5}}', "a.json", "Resources"),
        ("Description: a", "a.yaml", "Resources"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_exit_2(check: Check, content: str, name: str, words: str) -> None:
    code, out, err = check(content, name=name)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert words in err


def test_missing_files_and_folders_without_templates_are_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for path, words in ((tmp_path / "none.json", "No such file"), (tmp_path, "a folder without either")):
        assert cli.main(["check", str(path)]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert words in err


def test_bytes_that_are_no_text_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    assert cli.main(["check", str(path)]) == 2
    assert "not UTF-8" in capsys.readouterr().err


def test_an_unknown_region_is_refused_with_the_nearest(check: Check) -> None:
    code, _, err = check(GOOD, "--region", "us-east-11")
    assert code == 2
    assert "Did you mean 'us-east-1'?" in err


def test_the_region_decides(check: Check) -> None:
    assert check(GOOD, "--region", "us-east-1")[0] == 0
    code, out, _ = check(GOOD, "--region", "cn-north-1", "--json")
    assert (code, rules(out)) == (1, ["region-deployment-type"])


YAML = """
AWSTemplateFormatVersion: 2010-09-09
Parameters:
  Big: {Type: String, Default: yes}
Conditions:
  IsBig: !Equals [!Ref Big, "yes"]
Resources:
  Fs: &fs
    Type: AWS::FSx::FileSystem
    Properties:
      FileSystemType: LUSTRE
      FileSystemTypeVersion: "2.15"
      StorageCapacity: 1300
      SubnetIds: [!Ref Subnet]
      SecurityGroupIds: !Split [",", !Ref Groups]
      LustreConfiguration:
        DeploymentType: PERSISTENT_2
        PerUnitStorageThroughput: !If [IsBig, 1000, 125]
  Twin: *fs
  Link:
    Type: AWS::FSx::DataRepositoryAssociation
    Properties:
      FileSystemId: !GetAtt Fs.Id
      FileSystemPath: ns1/
      DataRepositoryPath: !Sub "s3://${Bucket}/a/"
      ImportedFileChunkSize: !Unheard of
"""


def test_yaml_with_short_functions_and_anchors_is_read_and_functions_are_left_alone(check: Check) -> None:
    code, out, err = check(YAML, "--json", "--region", "us-east-1", name="template.yaml")
    assert code == 1
    assert [(e["logical_id"], e["rule"]) for e in json.loads(out)] == [
        ("Fs", "lustre-capacity"),
        ("Twin", "lustre-capacity"),
        ("Link", "link-path"),
    ]
    assert "Fs.per_unit_storage_throughput: known only at deployment" in err
    assert "Link.chunk_size_mib: known only at deployment" in err


def test_the_same_template_in_json_and_yaml_gives_the_same(check: Check) -> None:
    pytest.importorskip("yaml")
    text = "Resources:\n  Fs:\n    Type: AWS::FSx::FileSystem\n    Properties:\n      FileSystemType: LUSTRE\n"
    text += "      StorageCapacity: 1300\n      SubnetIds: [subnet-1]\n"
    text += "      LustreConfiguration: {DeploymentType: SCRATCH_2}\n"
    assert check(text, "--json", name="t.yaml")[1] == check(BAD, "--json")[1]


def test_yaml_without_pyyaml_says_what_to_install_and_json_still_works(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    code, _, err = check("a: 1", name="a.yaml")
    assert code == 2
    assert "YAML needs PyYAML" in err
    assert check(BAD)[0] == 1


def test_keys_that_stand_twice_are_said_and_the_last_is_read(check: Check) -> None:
    twice = '{"Resources": {"Fs": {"Type": "AWS::FSx::FileSystem", "Properties": {"FileSystemType": "LUSTRE",'
    twice += '"StorageCapacity": 1200, "StorageCapacity": 1300, "SubnetIds": ["s"]}}}}'
    for name in ("a.json", "a.yaml"):
        code, out, err = check(twice, "--json", name=name)
        assert (code, rules(out)) == (1, ["lustre-capacity"])
        assert "'StorageCapacity' stands twice" in err


def test_keys_that_stand_twice_in_block_yaml_are_said_as_well(check: Check) -> None:
    code, _, err = check("Resources: {}\nOutputs: 1\nOutputs: 2\n", name="a.yaml")
    assert code == 0
    assert "'Outputs' stands twice" in err


@pytest.mark.parametrize("name", ["a.json", "a.yaml"])
def test_deep_nesting_is_cut_out_and_said(check: Check, name: str) -> None:
    deep = '{"Deep": ' * 5000 + "1" + "}" * 5000
    text = json.dumps({"Metadata": 0, **BAD}).replace('"Metadata": 0', f'"Metadata": {deep}')
    code, out, err = check(text, "--json", name=name)
    assert (code, rules(out)) == (1, ["lustre-capacity"])
    assert "nested deeper than 100 levels" in err


def test_deep_block_yaml_is_cut_out_as_well(check: Check) -> None:
    deep = "Metadata:\n" + "".join(f"{' ' * n}a:\n" for n in range(1, 900)) + " " * 900 + "b\n"
    code, _, err = check(deep + "Resources: {}\n", name="a.yaml")
    assert code == 0
    assert "nested deeper than 100 levels" in err


def test_anchors_that_multiply_do_not(check: Check) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    bomb = "\n".join(lines) + "\nResources:\n  Fs:\n    Type: AWS::FSx::FileSystem\n    Properties:\n"
    bomb += "      FileSystemType: LUSTRE\n      StorageCapacity: *a11\n      SubnetIds: *a11\n      KmsKeyId: *a11\n"
    bomb += "      LustreConfiguration: {DeploymentType: *a11, LogConfiguration: *a11}\n"
    bomb += "  Link:\n    Type: AWS::FSx::DataRepositoryAssociation\n    Properties: {FileSystemId: *a11,"
    bomb += (
        " DataRepositoryPath: *a11, FileSystemPath: {'Fn::Join': ['', *a11]}, S3: {AutoImportPolicy: {Events: *a11}}}\n"
    )
    start = time.monotonic()
    code, _, _ = check(bomb, name="a.yaml")
    assert code in (0, 1)
    assert time.monotonic() - start < 5


def test_an_alias_of_something_unfinished_is_said(check: Check) -> None:
    code, _, err = check("Resources: &r\n  A: *r\n  B: *nowhere\n", name="a.yaml")
    assert code in (0, 2)
    assert "r" in err


@pytest.mark.parametrize("name", ["a.json", "a.yaml"])
def test_a_template_of_a_megabyte_takes_seconds(check: Check, name: str) -> None:
    filler = {
        f"Role{n}": {"Type": "AWS::IAM::Role", "Properties": {"Description": "x" * 400, "Tags": [{"Key": "a"}] * 5}}
        for n in range(1800)
    }
    template = {"Resources": {**filler, **BAD["Resources"]}}
    text = json.dumps(template, indent=1) if name.endswith(".json") else yaml.safe_dump(template)
    assert len(text) > 1_000_000
    start = time.monotonic()
    code, out, _ = check(text, "--json", name=name)
    assert (code, rules(out)) == (1, ["lustre-capacity"])
    assert time.monotonic() - start < 20


def test_a_plan_is_checked_by_the_same_rules(check: Check) -> None:
    plan = json.loads(plan_storage(TrainingJob(instances=64)).to_json())
    assert check(plan)[0] == 0
    plan["fsx_lustre"]["storage_capacity_gib"] = 1300
    plan["fsx_lustre"]["per_unit_storage_throughput"] = 300
    code, out, _ = check(plan, "--json")
    assert code == 1
    assert {"lustre-capacity", "lustre-throughput"} <= set(rules(out))
    assert {entry["logical_id"] for entry in json.loads(out)} == {"plan"}


def assembly(folder: Path, *, region: str) -> None:
    (folder / "nested").mkdir()
    (folder / "Main.template.json").write_text(json.dumps(GOOD), encoding="utf-8")
    (folder / "Main.nested.template.json").write_text(json.dumps(BAD), encoding="utf-8")
    (folder / "nested" / "Stage.template.json").write_text(json.dumps(BAD), encoding="utf-8")
    stack = {
        "type": "aws:cloudformation:stack",
        "environment": f"aws://unknown-account/{region}",
        "properties": {"templateFile": "Main.template.json", "stackName": "main"},
    }
    stage = {"type": "cdk:cloud-assembly", "properties": {"directoryName": "nested"}}
    inner = {**stack, "properties": {"templateFile": "Stage.template.json"}}
    (folder / "manifest.json").write_text(json.dumps({"artifacts": {"Main": stack, "Stage": stage}}), encoding="utf-8")
    (folder / "nested" / "manifest.json").write_text(json.dumps({"artifacts": {"Stage": inner}}), encoding="utf-8")


def test_a_cloud_assembly_is_checked_whole_each_stack_in_its_region(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assembly(tmp_path, region="cn-north-1")
    assert cli.main(["check", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert out.count("[region-deployment-type;") == 3
    assert out.count("[lustre-capacity;") == 2


def test_the_guard_compares_with_a_file_and_accepts_by_name(
    check: Check, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "old.json"
    old.write_text(json.dumps(GOOD).replace("subnet-1", "subnet-0"), encoding="utf-8")
    code, out, _ = check(GOOD, "--json", "--against", str(old))
    assert (code, rules(out)) == (1, ["guard-replaced"])
    assert "SubnetIds" in json.loads(out)[0]["message"]
    assert check(GOOD, "--against", str(old), "--accept", "Fs")[0] == 0
    assert "--accept LOGICAL_ID" in check(GOOD, "--against", str(old))[1]
    assert check(GOOD, "--against", str(old), "--accept", "Typo")[0] == 2
    assert check(GOOD, "--accept", "Fs")[0] == 2
    capsys.readouterr()


class FakeClientError(Exception):
    pass


def deployed(
    monkeypatch: pytest.MonkeyPatch, body: Any, *, parameters: list[dict[str, str]] | None = None
) -> list[Any]:
    """Put a boto3 in place whose CloudFormation has one stack; return the calls."""
    calls: list[Any] = []

    class Client:
        def get_template(self, **arguments: Any) -> Any:
            calls.append(arguments)
            if arguments["StackName"] != "live":
                raise FakeClientError("Stack with id other\ndoes not exist")
            return {"TemplateBody": body}

        def describe_stacks(self, **_: Any) -> Any:
            return {"Stacks": [{"Parameters": parameters or []}]}

    boto3 = types.ModuleType("boto3")
    boto3.client = lambda name, region_name: calls.append((name, region_name)) or Client()  # type: ignore[attr-defined, func-returns-value]
    exceptions = types.ModuleType("botocore.exceptions")
    exceptions.BotoCoreError = exceptions.ClientError = FakeClientError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "boto3", boto3)
    monkeypatch.setitem(sys.modules, "botocore.exceptions", exceptions)
    return calls


def test_the_guard_compares_with_a_deployed_stack(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = deployed(monkeypatch, json.loads(json.dumps(GOOD).replace("SCRATCH_2", "SCRATCH_1")))
    code, out, _ = check(GOOD, "--json", "--deployed", "live", "--region", "eu-west-1")
    assert (code, rules(out)) == (1, ["guard-replaced"])
    assert calls[0] == ("cloudformation", "eu-west-1")
    assert calls[1]["TemplateStage"] == "Processed"
    assert check(GOOD, "--deployed", "live", "--accept", "Fs")[0] == 0


def test_a_deployed_yaml_template_and_hidden_parameters_are_read(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = [{"ParameterKey": "Secret", "ParameterValue": "****"}]
    deployed(monkeypatch, "Resources:\n  Hot: {Type: 'AWS::S3Express::DirectoryBucket'}\n", parameters=hidden)
    code, out, err = check(GOOD, "--json", "--deployed", "live")
    assert (code, rules(out)) == (1, ["guard-removed"])
    assert "parameter Secret: its value is hidden" in err


def test_a_stack_that_cannot_be_read_is_one_line(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    deployed(monkeypatch, GOOD)
    code, out, err = check(GOOD, "--deployed", "other")
    assert (code, out) == (2, "")
    assert "does not exist" in err
    assert err.count("\n") == 1


def test_the_stack_of_an_assembly_is_found_by_its_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assembly(tmp_path, region="us-east-1")
    deployed(monkeypatch, GOOD)
    assert cli.main(["check", str(tmp_path), "--deployed", "live"]) == 2
    assert "must name a stack of the cloud assembly (main, Stage)" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-16-le"])
def test_utf_16_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], encoding: str) -> None:
    path = tmp_path / "a.yaml"
    mark = {"utf-16": "", "utf-16-be": "\ufeff", "utf-16-le": "\ufeff"}[encoding]
    path.write_bytes((mark + json.dumps(GOOD)).encode(encoding))
    assert cli.main(["check", str(path)]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert "not UTF-8 but UTF-16: save it as UTF-8" in captured.err


def test_sarif_places_are_relative_and_percent_encoded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    (folder / "g#d%.json").write_text(json.dumps(BAD), encoding="utf-8")

    def uri(path: Path) -> str:
        assert cli.main(["check", str(path), "--sarif"]) == 1
        place = json.loads(capsys.readouterr().out)["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
        return str(place["artifactLocation"]["uri"])

    monkeypatch.chdir(tmp_path)
    assert uri(folder / "g#d%.json") == "a%20b/g%23d%25.json"
    assert uri(folder / ".." / "a b" / "g#d%.json") == "a%20b/g%23d%25.json"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert uri(folder / "g#d%.json").startswith("file:///")
    assert uri(folder / "g#d%.json").endswith("/a%20b/g%23d%25.json")


def test_an_id_that_cannot_be_written_is_escaped(check: Check) -> None:
    template = {"Resources": {"A\ud800": BAD["Resources"]["Fs"]}}
    assert "A\\ud800.Properties.StorageCapacity" in check(template)[1]
    for option in ("--json", "--sarif"):
        assert check(template, option)[0] == 1
    code, out, err = check({"schema_version": "\ud800"})
    assert (code, out, err.count("\n")) == (2, "", 1)
    lost = {"Resources": {"A\ud800": 5, "B": GOOD["Resources"]["Fs"]}}
    assert "A\\ud800: not a plain resource" in check(lost)[2]


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="needs a device that is always full")
def test_an_answer_that_cannot_be_written_is_one_line_and_exit_2(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(GOOD), encoding="utf-8")
    with pathlib.Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "training_storage.cli", "check", str(tmp_path / "a.json"), "--region", "us-east-1"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "cannot be written" in done.stderr


def test_an_assembly_within_itself_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assembly(tmp_path, region="us-east-1")
    own = {"type": "cdk:cloud-assembly", "properties": {"directoryName": ".."}}
    manifest = tmp_path / "nested" / "manifest.json"
    artifacts = json.loads(manifest.read_text(encoding="utf-8"))["artifacts"]
    manifest.write_text(json.dumps({"artifacts": {**artifacts, "Up": own}}), encoding="utf-8")
    assert cli.main(["check", str(tmp_path), "--json"]) == 1
    assert rules(capsys.readouterr().out).count("lustre-capacity") == 2


def parent(folder: Path, child: Any, **metadata: str) -> Path:
    """Write a template with a nested stack, whose template lies beside it as CDK writes it; return the folder."""
    folder.mkdir(exist_ok=True)
    (folder / "Child.nested.template.json").write_text(json.dumps(child), encoding="utf-8")
    given = metadata or {"aws:asset:path": "Child.nested.template.json", "aws:asset:property": "TemplateURL"}
    nested = {
        "Type": "AWS::CloudFormation::Stack",
        "Properties": {"TemplateURL": {"Fn::Sub": "https://example.com/hash.json"}},
        "Metadata": given,
    }
    (folder / "Main.template.json").write_text(json.dumps({"Resources": {"Child": nested}}), encoding="utf-8")
    return folder


def test_nested_stacks_are_named_where_their_template_is_not_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = parent(tmp_path / "out", GOOD)
    assert cli.main(["check", str(folder / "Main.template.json")]) == 0
    assert "not checked" in capsys.readouterr().err
    assert cli.main(["check", str(folder), "--region", "us-east-1"]) == 0
    assert capsys.readouterr().err == ""
    parent(folder, BAD)
    assert cli.main(["check", str(folder), "--json"]) == 1
    assert rules(capsys.readouterr().out) == ["lustre-capacity"]


def test_the_guard_goes_into_nested_stacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = parent(tmp_path / "old", GOOD) / "Main.template.json"
    new = parent(tmp_path / "new", json.loads(json.dumps(GOOD).replace("subnet-1", "subnet-2")))
    assert cli.main(["check", str(new), "--json", "--against", str(old)]) == 1
    [entry] = json.loads(capsys.readouterr().out)
    assert (entry["rule"], entry["logical_id"]) == ("guard-replaced", "Child/Fs")
    assert cli.main(["check", str(new), "--against", str(old), "--accept", "Child/Fs"]) == 0
    assert cli.main(["check", str(new), "--against", str(old), "--accept", "Child/Typo"]) == 2
    capsys.readouterr()
    unknown = parent(tmp_path / "elsewhere", GOOD, other="file")
    assert cli.main(["check", str(unknown / "Main.template.json"), "--against", str(old)]) == 0
    assert "Child: nested stack whose template is not at hand" in capsys.readouterr().err
    (tmp_path / "none.json").write_text(json.dumps({"Resources": {}}), encoding="utf-8")
    assert cli.main(["check", str(tmp_path / "none.json"), "--json", "--against", str(old)]) == 1
    assert json.loads(capsys.readouterr().out)[0]["logical_id"] == "Child/Fs"


def test_a_template_that_nests_itself_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = parent(
        tmp_path / "out", GOOD, **{"aws:asset:path": "Main.template.json", "aws:asset:property": "TemplateURL"}
    )
    main = str(folder / "Main.template.json")
    assert cli.main(["check", main, "--against", main]) == 0
    assert cli.main(["check", str(folder)]) == 0
    capsys.readouterr()


def test_the_deployed_values_of_parameters_decide_conditions(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    template = {
        "Parameters": {"Keep": {"Type": "String", "Default": "yes"}},
        "Conditions": {"Kept": {"Fn::Equals": [{"Ref": "Keep"}, "yes"]}},
        "Resources": {"Fs": {**GOOD["Resources"]["Fs"], "Condition": "Kept"}, "Role": {"Type": "AWS::IAM::Role"}},
    }
    other = {**template, "Conditions": {"Kept": {"Fn::Equals": [{"Ref": "Keep"}, "no"]}}}
    for value, code in (("yes", 1), ("no", 0)):
        deployed(monkeypatch, template, parameters=[{"ParameterKey": "Keep", "ParameterValue": value}])
        assert check(other, "--deployed", "live", "--region", "us-east-1")[0] == code


def test_nested_stacks_of_a_deployed_one_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = parent(tmp_path / "out", json.loads(json.dumps(GOOD).replace("subnet-1", "subnet-2")))
    main = folder / "Main.template.json"
    bodies = {"live": json.loads(main.read_text(encoding="utf-8")), "arn:child": GOOD}

    class Client:
        def get_template(self, **arguments: Any) -> Any:
            return {"TemplateBody": bodies[arguments["StackName"]]}

        def describe_stacks(self, **_: Any) -> Any:
            return {"Stacks": [{}]}

        def describe_stack_resource(self, **arguments: Any) -> Any:
            assert arguments == {"StackName": "live", "LogicalResourceId": "Child"}
            return {"StackResourceDetail": {"PhysicalResourceId": "arn:child"}}

    deployed(monkeypatch, {})
    monkeypatch.setattr(sys.modules["boto3"], "client", lambda *_, **__: Client())
    assert cli.main(["check", str(main), "--deployed", "live", "--region", "us-east-1"]) == 1
    assert cli.main(["check", str(main), "--deployed", "live", "--accept", "Child/Fs"]) == 0


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["..", "\0", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
HANDED = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(ANYTHING, ANYTHING)
@HANDED
def test_any_document_gets_an_answer(check: Check, tmp_path: Path, one: Any, other: Any) -> None:
    (tmp_path / "old.json").write_text(json.dumps({"Resources": one}), encoding="utf-8")
    for document in (one, {"Resources": one}, {"Resources": {"A": one, "Fs": other}}, {**GOOD, "Conditions": one}):
        for options in ((), ("--sarif",), ("--against", str(tmp_path / "old.json"))):
            code, out, err = check(json.dumps(document), *options)
            assert code in (0, 1, 2)
            assert (code == 2) == (out == "")
            assert code != 2 or err.count("\n") == 1


@given(
    st.sampled_from(["type", "environment", "properties", "templateFile", "stackName", "directoryName", "artifacts"]),
    ANYTHING,
)
@HANDED
def test_any_manifest_gets_an_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str, value: Any
) -> None:
    (tmp_path / "Main.template.json").write_text(json.dumps(GOOD), encoding="utf-8")
    properties = {"templateFile": "Main.template.json", "stackName": "main", "directoryName": "."}
    artifact: dict[str, Any] = {"type": "aws:cloudformation:stack", "environment": "aws://a/us-east-1"}
    stage = {**artifact, "type": "cdk:cloud-assembly", "properties": {**properties, place: value}}
    artifact |= {"properties": {**properties, place: value}, place: value}
    artifacts = value if place == "artifacts" else {"Main": artifact, "Stage": stage}
    (tmp_path / "manifest.json").write_text(json.dumps({"artifacts": artifacts}), encoding="utf-8")
    assert cli.main(["check", str(tmp_path)]) in (0, 1, 2)
    assert cli.main(["check", str(tmp_path), "--against", str(tmp_path / "Main.template.json")]) in (0, 1, 2)
    capsys.readouterr()


@pytest.mark.parametrize(
    "assets",
    [
        {
            "files": {
                "hash": {
                    "source": {"path": "Child.nested.template.json"},
                    "destinations": {"a": {"objectKey": "hash.json"}},
                }
            }
        },
        [],
        {"files": {"hash": 5}},
        {"files": {"hash": {"source": {}, "destinations": {"a": {"objectKey": "hash.json"}}}}},
    ],
)
def test_nested_templates_are_found_by_the_list_of_assets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], assets: Any
) -> None:
    folder = parent(tmp_path / "out", GOOD, other="nothing")
    (folder / "Main.assets.json").write_text(json.dumps(assets), encoding="utf-8")
    assert cli.main(["check", str(folder), "--region", "us-east-1"]) == 0
    listed = isinstance(assets, dict) and "source" in str(assets) and "path" in str(assets)
    assert (capsys.readouterr().err == "") is listed
