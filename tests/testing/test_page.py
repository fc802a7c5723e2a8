"""docs/testing.md works as it stands: its Python is a user's test file, its commands are run on it."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

# Here, because pytester forgets what a session within a test has loaded, and cfn-lint cannot be loaded twice.
import cfnlint.api  # noqa: F401
import pytest

from training_storage.testing.local_aws import LocalAws

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")


def fenced(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def commands() -> Iterator[tuple[dict[str, str], list[str]]]:
    """Yield variables and words of each command of the page."""
    for block in fenced("console"):
        for line in block.splitlines():
            words = shlex.split(line.removeprefix("$ "))
            named = [word for word in words if re.match(r"[A-Z_]+=", word)]
            yield dict(word.split("=", 1) for word in named), words[len(named) :]


@pytest.mark.local_aws
def test_the_page_s_tests_pass_with_the_page_s_commands(
    pytester: pytest.Pytester, local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(test_storage="\n\n".join(fenced("python")))
    # The page's own server would be another one like that of this session.
    monkeypatch.setattr(
        LocalAws, "start", lambda **_settings: LocalAws(endpoint_url=local_aws.endpoint_url, region=local_aws.region)
    )
    runs: list[tuple[str, int]] = []
    for variables, (program, *arguments) in commands():
        if program == "pip" or "--nothing-lost-since" in arguments:
            continue
        # The class of the page that is for unittest has commands of its own.
        words = ["not StorageTest"] if program == "pytest" else ["StorageTest"]
        assert program == "pytest" or arguments == ["-m", "unittest", "test_storage.py"]
        # The second time only what is compared with what the first one wrote.
        words += ["last_reviewed"] * (program in {before for before, _ in runs})
        options = [*(arguments if program == "pytest" else ()), "-k", " and ".join(words)]
        before = buckets(local_aws)
        with monkeypatch.context() as environment:
            for name, value in variables.items():
                environment.setenv(name, value)
            result = pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)
        forget(local_aws, buckets(local_aws) - before)
        outcomes = result.parseoutcomes()
        assert not outcomes.keys() & {"failed", "error", "errors", "skipped"}, outcomes
        runs.append((program, outcomes["passed"]))
    assert runs == [("pytest", 6), ("pytest", 1), ("python", 3), ("python", 1)]
    assert (pytester.path / "snapshots" / "storage.json").exists()
    (written,) = pytester.path.glob("__snapshots__/*/*.json")
    assert written.relative_to(pytester.path).as_posix() in PAGE


def buckets(aws: LocalAws) -> set[str]:
    return {entry["Name"] for entry in aws.client("s3").list_buckets()["Buckets"]}


def forget(aws: LocalAws, names: set[str]) -> None:
    """Remove the lake that a run has retained; for a user each run has a server of its own."""
    s3 = aws.client("s3")
    for name in names:
        found = s3.list_object_versions(Bucket=name)
        for version in [*found.get("Versions", []), *found.get("DeleteMarkers", [])]:
            s3.delete_object(Bucket=name, Key=version["Key"], VersionId=version["VersionId"])
        s3.delete_bucket(Bucket=name)


def test_options_variables_and_extras_of_the_page_exist(request: pytest.FixtureRequest) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known = {option for action in request.config._parser.optparser._actions for option in action.option_strings}
    for _, (program, *arguments) in commands():
        options = {word for word in arguments if word.startswith("--")}
        assert program != "pytest" or options <= known
        if program == "pip":
            extras = arguments[-1].partition("[")[2].rstrip("]").split(",")
            assert set(extras) <= set(project["optional-dependencies"])
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) <= known
