"""The pytest plugin: fixtures for templates, compliance and the local AWS.

pytest loads it in every session of an environment that has the package, so nothing is imported here that costs time:
CDK, boto3, syrupy, cfn-lint and the local AWS come with the first fixture that needs them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from training_storage.testing.local_aws import LocalAws
    from training_storage.testing.template_snapshot import TemplateSnapshot

_LOST = pytest.StashKey[list[str]]()
_TESTING = "pip install 'training-storage[testing]'"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("training-storage")
    group.addoption(
        "--nothing-lost-since",
        metavar="REVISION",
        help="fail a template_snapshot whose update since this revision of git would replace or remove a resource"
        " with data, for example origin/main",
    )
    group.addoption(
        "--accept-lost",
        metavar="LOGICAL_ID",
        action="append",
        default=[],
        help="with --nothing-lost-since: a resource that may go with a stack whose snapshot is gone; may be repeated",
    )
    group.addoption(
        "--local-aws-missing",
        choices=("fail", "skip"),
        default="fail",
        help="what becomes of tests with local_aws where the extra local-aws is not installed (default: %(default)s)",
    )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the session if a stack with data has gone with its test: no test is left that could."""
    config = session.config
    revision = config.getoption("nothing_lost_since")
    if revision is None or hasattr(config, "workerinput") or config.option.collectonly:
        return
    from training_storage.testing.vanished_snapshots import lost_with_snapshots  # noqa: PLC0415 -- when it is used

    try:
        lost = lost_with_snapshots(revision, config.rootpath, accept=config.getoption("accept_lost"))
    except ValueError as error:
        lost = [str(error)]
    config.stash[_LOST] = lost
    if lost and session.exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:  # noqa: ANN401 -- private type
    """Name what `pytest_sessionfinish` found."""
    lost = config.stash.get(_LOST, [])
    if lost:
        terminalreporter.section(f"nothing lost since {config.getoption('nothing_lost_since')}", red=True, bold=True)
        for line in lost:
            terminalreporter.line(line)


@pytest.fixture
def template_snapshot(request: pytest.FixtureRequest) -> TemplateSnapshot:
    """Compare a template with the snapshot that was last reviewed; ``pytest --snapshot-update`` writes it.

    ``template_snapshot(stack)`` takes a stack, an app, a template or a ``cdk.out``, leaves out what changes with CDK
    itself (keys of assets, the bootstrap rule, analytics), and names every value that differs. With
    ``--nothing-lost-since origin/main`` it also fails if a resource with data would be replaced or removed since then.
    """
    try:
        from training_storage.testing.template_snapshot import TemplateSnapshot as Snapshot  # noqa: PLC0415 -- syrupy
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("syrupy"):
            raise
        pytest.fail(f"template_snapshot needs syrupy, got: none; {_TESTING}", pytrace=False)
    return Snapshot(request.getfixturevalue("snapshot"), since=request.config.getoption("nothing_lost_since"))


@pytest.fixture
def assert_compliant() -> Callable[..., None]:
    """Return `training_storage.testing.assert_compliant`: cdk-nag, our rules and cfn-lint find nothing."""
    from training_storage.testing.compliance import assert_compliant as function  # noqa: PLC0415 -- when it is used

    return function


@pytest.fixture
def assert_legal() -> Callable[..., None]:
    """Return `training_storage.testing.assert_legal`: FSx for Lustre and S3 Express would refuse nothing."""
    from training_storage.testing.assertions import assert_legal as function  # noqa: PLC0415 -- when it is used

    return function


@pytest.fixture
def assert_nothing_lost() -> Callable[..., None]:
    """Return `training_storage.testing.assert_nothing_lost`: an update replaces and removes no resource with data."""
    from training_storage.testing.assertions import assert_nothing_lost as function  # noqa: PLC0415 -- when it is used

    return function


@pytest.fixture(scope="session")
def local_aws_settings() -> Mapping[str, Any]:
    """Parameters of `LocalAws.start` for the fixture `local_aws`; override it to change them.

    By default gates and state machines wait a twentieth of what they ask for (``quick``).
    """
    return {"quick": True}


@pytest.fixture(scope="session")
def local_aws(request: pytest.FixtureRequest, local_aws_settings: Mapping[str, Any]) -> Iterator[LocalAws]:
    """Start a local AWS on 127.0.0.1 for the session: ``deploy(app)``, ``client("fsx")``, ``environment()``.

    Its endpoint is stated with every client and checked to be a loopback address, with made-up credentials, so that
    nothing reaches a real account. Where the extra ``local-aws`` is missing the test fails; to have it skipped give
    ``--local-aws-missing skip``.
    """
    from training_storage.testing.local_aws import LocalAws, LocalAwsMissingError  # noqa: PLC0415 -- boto3

    try:
        started = LocalAws.start(**local_aws_settings)
    except LocalAwsMissingError as error:
        if request.config.getoption("local_aws_missing") == "skip":
            pytest.skip(str(error))
        pytest.fail(str(error), pytrace=False)
    with started as aws:
        yield aws


@pytest.fixture
def local_aws_environment(local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> LocalAws:
    """Point every SDK of this process at the local AWS; no variable, profile or file of the user is left."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in local_aws.settings().items():
        monkeypatch.setenv(name, value)
    return local_aws
