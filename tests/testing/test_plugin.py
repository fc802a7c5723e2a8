"""The plugin costs nothing until a fixture is used, and its local AWS reaches no real account."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import Any

import pytest

import training_storage.testing
from training_storage.testing.local_aws import LocalAws, LocalAwsError

pytest_plugins = ["pytester"]

HEAVY = ("aws_cdk", "jsii", "boto3", "botocore", "cdk_nag", "cfnlint", "ministack", "syrupy")
USES_LOCAL_AWS = "def test_deploys(local_aws): pass"


def test_loading_the_plugin_loads_nothing_of_weight_and_little_of_ours() -> None:
    script = (
        "import sys, pytest; before = set(sys.modules); import training_storage.testing.plugin;"
        "print(*sorted(name for name in set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert not {name.split(".")[0] for name in loaded} & set(HEAVY)
    assert [name for name in loaded if name.startswith("training_storage")] == [
        "training_storage",
        "training_storage.testing",
        "training_storage.testing.plugin",
    ]


def test_pytest_finds_the_plugin_by_its_entry_point(request: pytest.FixtureRequest) -> None:
    plugin: Any = request.config.pluginmanager.get_plugin("training_storage")
    assert plugin.__name__ == "training_storage.testing.plugin"


def test_every_public_name_resolves_and_an_unknown_one_does_not() -> None:
    for name in training_storage.testing.__all__:
        assert getattr(training_storage.testing, name) is not None
    assert dir(training_storage.testing) == sorted(training_storage.testing.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'assert_fine'"):
        _ = training_storage.testing.assert_fine


def test_the_fixtures_of_assertions_are_the_functions(
    assert_compliant: Any, assert_legal: Any, assert_nothing_lost: Any
) -> None:
    for fixture in (assert_compliant, assert_legal, assert_nothing_lost):
        assert fixture is getattr(training_storage.testing, fixture.__name__)


@pytest.fixture
def _without_ministack(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "ministack" else real(name, *more)
    )


@pytest.mark.usefixtures("_without_ministack")
@pytest.mark.parametrize(("options", "outcome"), [([], "errors"), (["--local-aws-missing", "skip"], "skipped")])
def test_without_the_extra_a_test_fails_unless_skipping_is_asked_for(
    pytester: pytest.Pytester, options: list[str], outcome: str
) -> None:
    pytester.makepyfile(USES_LOCAL_AWS)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-rs", *options)
    result.assert_outcomes(**{outcome: 1})
    result.stdout.fnmatch_lines(["*the local AWS needs ministack: pip install 'training-storage[[]local-aws]'*"])


def test_a_local_aws_that_does_not_start_fails_also_where_skipping_is_asked_for(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(**_settings: object) -> LocalAws:
        raise LocalAwsError("the local AWS did not start: no memory")

    monkeypatch.setattr(LocalAws, "start", start)
    pytester.makepyfile(USES_LOCAL_AWS)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--local-aws-missing", "skip")
    result.assert_outcomes(errors=1)


def test_settings_of_the_project_reach_the_local_aws(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []

    def start(**settings: Any) -> LocalAws:
        given.append(settings)
        return LocalAws(endpoint_url="http://127.0.0.1:1", region="us-east-1")

    monkeypatch.setattr(LocalAws, "start", start)
    pytester.makepyfile(USES_LOCAL_AWS)
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
    pytester.makeconftest(
        """
        import pytest
        @pytest.fixture(scope="session")
        def local_aws_settings(): return {"region": "eu-north-1"}
        """
    )
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
    assert given == [{"quick": True}, {"region": "eu-north-1"}]


def test_an_endpoint_elsewhere_is_refused() -> None:
    with pytest.raises(LocalAwsError, match="reached over loopback only, got the endpoint https://fsx.us-east-1"):
        LocalAws(endpoint_url="https://fsx.us-east-1.amazonaws.com", region="us-east-1")


@pytest.mark.local_aws
def test_sdks_of_the_process_reach_the_local_aws_and_nothing_of_the_user(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_ENDPOINT_URL_FSX", "https://fsx.example.com")
    aws = request.getfixturevalue("local_aws_environment")
    assert {name for name in os.environ if name.startswith("AWS_")} <= set(aws.settings())
    import boto3  # noqa: PLC0415 -- this test alone makes a client by itself

    client = boto3.client("fsx")
    assert client.meta.endpoint_url == aws.endpoint_url
    assert client.describe_file_systems()["ResponseMetadata"]["HTTPStatusCode"] == 200
