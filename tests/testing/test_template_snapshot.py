"""The fixture `template_snapshot` in a user's project, and the same without pytest."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.testing.conftest import LUSTRE, nested_app
from training_storage.testing import NotComparedWarning, assert_matches_snapshot, assert_nothing_lost, template_at
from training_storage.testing.snapshots import UPDATE_VARIABLE

if TYPE_CHECKING:
    from pathlib import Path

pytest_plugins = ["pytester"]

TEMPLATE: dict[str, Any] = {
    "Parameters": {"BootstrapVersion": {"Type": "String", "Default": "/cdk-bootstrap/hnb659fds/version"}},
    "Resources": {"Fs": LUSTRE, "Topic": {"Type": "AWS::SNS::Topic"}},
}
TEST = """
import json, pathlib
def test_storage(template_snapshot):
    template_snapshot(json.loads(pathlib.Path("template.json").read_text()))
"""
SNAPSHOT = "__snapshots__/test_project/test_storage.json"


def changed(**lustre: Any) -> dict[str, Any]:
    """The template, with other properties of the file system."""
    system = {**LUSTRE, "Properties": {**LUSTRE["Properties"], **lustre}}
    return {**TEMPLATE, "Resources": {**TEMPLATE["Resources"], "Fs": system}}


class Project:
    """A folder with one test and one template."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.folder = pytester.path
        pytester.makepyfile(test_project=TEST)
        self.write(TEMPLATE)

    def write(self, template: dict[str, Any]) -> None:
        (self.folder / "template.json").write_text(json.dumps(template), encoding="utf-8")

    def run(self, *options: str, failed: int = 0) -> str:
        result = self.pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)
        result.assert_outcomes(passed=1 - failed, failed=failed, warnings=None)
        return result.stdout.str()

    def commit(self) -> None:
        """Commit everything."""
        identity = ["-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"]
        for arguments in (["init", "--quiet"], ["add", "."], [*identity, "commit", "--quiet", "-m", "Reviewed"]):
            subprocess.run([str(shutil.which("git")), *arguments], cwd=self.folder, check=True, capture_output=True)


@pytest.fixture
def project(pytester: pytest.Pytester) -> Project:
    return Project(pytester)


def test_without_a_snapshot_the_test_fails_and_says_how_to_write_it(project: Project) -> None:
    text = project.run(failed=1)
    assert f"there is no snapshot {SNAPSHOT} yet: pytest --snapshot-update writes it" in text
    assert not (project.folder / SNAPSHOT).exists()


def test_a_snapshot_that_was_written_is_normalised_and_passes(project: Project) -> None:
    project.run("--snapshot-update")
    assert json.loads((project.folder / SNAPSHOT).read_text(encoding="utf-8")) == {"Resources": TEMPLATE["Resources"]}
    project.run()


def test_a_difference_is_named_line_by_line_without_the_plugins_own_code(project: Project) -> None:
    project.run("--snapshot-update")
    project.write(changed(StorageCapacity=7200))
    text = project.run(failed=1)
    assert f"AssertionError: the template is not as in {SNAPSHOT} (- snapshot, + now)." in text
    assert "E       ~ Resources.Fs.Properties.StorageCapacity: 4800 -> 7200" in text
    assert "data would be lost" not in text
    assert "holds_several" not in text


def test_a_difference_that_loses_data_says_so(project: Project) -> None:
    project.run("--snapshot-update")
    project.write(changed(KmsKeyId="other"))
    text = project.run(failed=1)
    assert '+ Resources.Fs.Properties.KmsKeyId: "other"' in text
    assert "! data would be lost: Fs: FSx::FileSystem would be replaced because of KmsKeyId" in text


def test_since_a_revision_an_updated_snapshot_still_may_not_lose_data(project: Project) -> None:
    project.run("--snapshot-update")
    project.commit()
    project.write(changed(KmsKeyId="other"))
    project.run("--snapshot-update")
    project.run()
    text = project.run("--nothing-lost-since", "HEAD", failed=1)
    assert "since HEAD data would be lost; if it is meant, accept=[…] names the resource: Fs:" in text


def test_since_a_revision_a_loss_that_is_meant_and_a_harmless_change_pass(project: Project) -> None:
    project.run("--snapshot-update")
    project.commit()
    project.write(changed(StorageCapacity=7200))
    project.run("--snapshot-update", "--nothing-lost-since", "HEAD")
    project.write(changed(KmsKeyId="other"))
    project.pytester.makepyfile(test_project=TEST.replace("read_text())", 'read_text()), accept=["Fs"]'))
    project.run("--snapshot-update", "--nothing-lost-since", "HEAD")


def test_since_a_revision_a_stack_that_is_gone_with_its_test_fails_the_run(project: Project) -> None:
    project.run("--snapshot-update")
    project.commit()
    (project.folder / SNAPSHOT).unlink()
    project.pytester.makepyfile(test_project="def test_nothing(): pass")
    for options, status in ([], 1), (["--accept-lost", "Topic"], 1), (["--accept-lost", "Fs"], 0):
        result = project.pytester.runpytest_inprocess(
            "-p", "no:cacheprovider", "--nothing-lost-since", "HEAD", *options
        )
        assert result.ret == status
        gone = f"{SNAPSHOT} of HEAD is gone, and with its stack data would be lost: Fs; if it is meant, give"
        assert (gone in result.stdout.str()) == (status == 1)
    assert project.pytester.runpytest_inprocess("-p", "no:cacheprovider").ret == 0


def test_since_a_revision_a_renamed_test_passes_and_hides_no_loss(project: Project) -> None:
    project.run("--snapshot-update")
    project.commit()
    project.pytester.makepyfile(test_project=TEST.replace("test_storage", "test_renamed"))
    (project.folder / SNAPSHOT).unlink()
    project.run("--snapshot-update", "--nothing-lost-since", "HEAD")
    project.write(changed(KmsKeyId="other"))
    project.run("--snapshot-update")
    options = ["-p", "no:cacheprovider", "--nothing-lost-since", "HEAD"]
    assert project.pytester.runpytest_inprocess(*options).ret == 1


def test_a_new_snapshot_with_brackets_in_its_name_is_said_to_be_new(project: Project) -> None:
    project.commit()
    parametrized = TEST.replace("def test", "import pytest\n@pytest.mark.parametrize('size', ['small'])\ndef test")
    project.pytester.makepyfile(test_project=parametrized.replace("(template_snapshot)", "(template_snapshot, size)"))
    text = project.run("--snapshot-update", "--nothing-lost-since", "HEAD")
    assert "NotComparedWarning: HEAD holds no test_storage[small].json, so it is not compared" in text


def test_a_revision_that_git_does_not_know_fails_in_one_line(project: Project) -> None:
    project.run("--snapshot-update")
    project.commit()
    text = project.run("--nothing-lost-since", "origin/main", failed=1)
    assert "revision must be one that git knows here, got: 'origin/main'; fetch it first" in text


def test_a_revision_that_git_does_not_know_fails_a_run_without_any_snapshot(project: Project) -> None:
    project.commit()
    project.pytester.makepyfile(test_project="def test_nothing(): pass")
    result = project.pytester.runpytest_inprocess("-p", "no:cacheprovider", "--nothing-lost-since", "origin/main")
    assert result.ret == 1
    assert "revision must be one that git knows here, got: 'origin/main'" in result.stdout.str()


def test_a_snapshot_that_the_revision_does_not_hold_is_said(project: Project) -> None:
    project.commit()
    text = project.run("--snapshot-update", "--nothing-lost-since", "HEAD")
    assert "NotComparedWarning: HEAD holds no test_storage.json, so it is not compared" in text


def test_an_app_has_a_snapshot_for_each_stack(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_project="""
        from aws_cdk import App, Stack, Stage
        from aws_cdk import aws_sns as sns
        def test_app(template_snapshot, tmp_path):
            app = App(outdir=str(tmp_path))
            sns.CfnTopic(Stack(app, "Lake"), "Topic")
            sns.CfnTopic(Stack(Stage(app, "Prod"), "Job"), "Topic")
            template_snapshot(app)
            template_snapshot(app.node.find_child("Lake"), name="alone")
        """
    )
    pytester.runpytest_inprocess("-p", "no:cacheprovider", "--snapshot-update").assert_outcomes(passed=1)
    folder = pytester.path / "__snapshots__" / "test_project"
    assert sorted(path.name for path in folder.iterdir()) == [
        "test_app[Lake].json",
        "test_app[Prod-Job].json",
        "test_app[alone].json",
    ]
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_a_snapshot_that_is_no_json_is_said_to_be_none(project: Project) -> None:
    project.run("--snapshot-update")
    (project.folder / SNAPSHOT).write_text("<<<<<<< ours\n", encoding="utf-8")
    assert "a snapshot must be JSON, got:" in project.run(failed=1)


def test_without_syrupy_the_test_fails_and_says_what_to_install(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "training_storage.testing.template_snapshot", raising=False)
    monkeypatch.setitem(sys.modules, "syrupy.extensions.json", None)
    result = project.pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*template_snapshot needs syrupy, got: none; pip install 'training-storage[[]testing[]]'*"]
    )


# ---- without pytest ----


def test_the_function_writes_what_the_fixture_writes(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    project.run("--snapshot-update")
    path = tmp_path / "snapshots" / "storage.json"
    monkeypatch.setenv(UPDATE_VARIABLE, "1")
    assert_matches_snapshot(TEMPLATE, path)
    assert path.read_bytes() == (project.folder / SNAPSHOT).read_bytes()
    monkeypatch.delenv(UPDATE_VARIABLE)
    assert_matches_snapshot(TEMPLATE, path)
    with pytest.raises(AssertionError, match="StorageCapacity: 4800 -> 7200"):
        assert_matches_snapshot(changed(StorageCapacity=7200), path)


def test_the_function_needs_a_snapshot_and_says_how_to_write_it(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=rf"there is no snapshot .*none.json yet: {UPDATE_VARIABLE}=1 writes it"):
        assert_matches_snapshot(TEMPLATE, tmp_path / "none.json", update=False)
    assert list(tmp_path.iterdir()) == []


def test_the_function_compares_with_a_revision_too(project: Project) -> None:
    path = project.folder / "storage.json"
    assert_matches_snapshot(TEMPLATE, path, update=True)
    project.commit()
    with pytest.raises(AssertionError, match="since HEAD data would be lost"):
        assert_matches_snapshot(changed(KmsKeyId="other"), path, update=True, since="HEAD")
    assert_matches_snapshot(changed(KmsKeyId="other"), path, since="HEAD", accept=["Fs"])


def test_a_stack_is_compared_with_a_file_of_a_revision_nested_stacks_included(project: Project, asset: Path) -> None:
    path = project.folder / "job.json"
    assert_matches_snapshot(nested_app(project.folder / "one", asset), path, update=True)
    project.commit()
    before = template_at("HEAD", path)
    assert_nothing_lost(before, nested_app(project.folder / "two", asset, capacity=7200))
    # Less capacity cannot be had in place: the service refuses it.
    with pytest.raises(AssertionError, match=r"^TierNested.*/Lustre: FSx::FileSystem .*StorageCapacity"):
        assert_nothing_lost(before, nested_app(project.folder / "three", asset, capacity=2400))


def test_a_nested_stack_that_is_not_at_hand_is_warned_of() -> None:
    nested = {"Resources": {"N": {"Type": "AWS::CloudFormation::Stack", "Properties": {"TemplateURL": "https://a/b"}}}}
    with pytest.warns(NotComparedWarning, match="N: nested stack whose template is not at hand"):
        assert_nothing_lost(nested, nested)


@pytest.mark.parametrize(
    ("revision", "name", "message"),
    [
        ("HEAD", "nothing.json", "path must be a file of revision HEAD, got: 'nothing.json'"),
        ("HEAD", "test_project.py", "a template must be JSON, got: 'test_project.py' of HEAD"),
        ("--help", "template.json", "revision must be one that git knows here, got: '--help'"),
    ],
)
def test_what_a_revision_does_not_hold_is_refused_in_one_line(
    project: Project, revision: str, name: str, message: str
) -> None:
    project.commit()
    with pytest.raises(ValueError, match=message) as refused:
        template_at(revision, name)
    assert "\n" not in str(refused.value)


def test_a_file_outside_any_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="path must be in a checkout of git"):
        template_at("HEAD", tmp_path / "template.json")
