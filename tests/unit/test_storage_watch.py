"""The watch: what it publishes of each link, and that one failing observation hides no other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from training_storage.functions.storage_watch import watch as module
from training_storage.functions.storage_watch.watch import Observed, Watched, WatchError, watch

if TYPE_CHECKING:
    from collections.abc import Iterator

WATCHED = Watched(job="llama", file_system_id="fs-0123456789abcdef0")


def link(path: str, state: str = "AVAILABLE", **members: Any) -> dict[str, Any]:
    return {"AssociationId": f"dra-{path.strip('/')}", "FileSystemPath": path, "Lifecycle": state, **members}


class Aws:
    """FSx with pages of links, and a CloudWatch that keeps what it is given."""

    def __init__(self, *pages: list[dict[str, Any]]) -> None:
        self.pages = list(pages)
        self.requests: list[dict[str, Any]] = []
        self.published: list[dict[str, Any]] = []

    def __call__(self, service: str) -> Any:
        assert service in ("fsx", "cloudwatch")
        return self

    def describe_data_repository_associations(self, **request: Any) -> dict[str, Any]:
        self.requests.append(dict(request))
        number = int(request.get("NextToken", 0))
        more = {"NextToken": str(number + 1)} if number + 1 < len(self.pages) else {}
        return {"Associations": self.pages[number], **more}

    def put_metric_data(self, **request: Any) -> None:
        self.published.append(request)

    def figures(self) -> dict[str | None, float]:
        """Value by link path; None for the figure without one."""
        [request] = self.published
        assert request["Namespace"] == "TrainingStorage"
        found = {}
        for datum in request["MetricData"]:
            dimensions = {dimension["Name"]: dimension["Value"] for dimension in datum["Dimensions"]}
            assert (dimensions.pop("Job"), dimensions.pop("FileSystemId")) == ("llama", "fs-0123456789abcdef0")
            assert datum["MetricName"] == "LinkMisconfigured"
            found[dimensions.get("LinkPath")] = datum["Value"]
        return found


def test_links_that_work_are_0() -> None:
    aws = Aws([link("/datasets/"), link("/logs/", "UPDATING")])
    assert watch(WATCHED, aws) == 3
    assert aws.figures() == {"/datasets/": 0, "/logs/": 0, None: 0}


@pytest.mark.parametrize("state", ["MISCONFIGURED", "FAILED"])
def test_a_link_that_carries_nothing_is_1_and_so_is_the_whole(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    broken = link("/logs/", state, FailureDetails={"Message": "the notification FSx is missing"})
    aws = Aws([broken, link("/datasets/")])
    watch(WATCHED, aws)
    assert aws.figures() == {"/logs/": 1, "/datasets/": 0, None: 1}
    said = json.loads(capsys.readouterr().out)
    assert said["path"] == "/logs/"
    assert said["state"] == state
    assert said["reason"] == "the notification FSx is missing"


def test_every_page_of_this_file_system_is_read() -> None:
    aws = Aws([link("/datasets/")], [link("/logs/", "MISCONFIGURED")])
    watch(WATCHED, aws)
    assert aws.figures()["/logs/"] == 1
    assert [request["Filters"] for request in aws.requests] == [
        [{"Name": "file-system-id", "Values": ["fs-0123456789abcdef0"]}]
    ] * 2


def test_without_a_link_the_figure_for_the_alarm_is_there_all_the_same() -> None:
    aws = Aws([])
    watch(WATCHED, aws)
    assert aws.figures() == {None: 0}


def test_a_failing_observation_fails_the_run_after_the_others_are_published() -> None:
    def broken(_watched: Watched, _client: Any) -> Iterator[Observed]:
        raise PermissionError("not allowed")
        yield

    aws = Aws([link("/logs/", "MISCONFIGURED")])
    with pytest.raises(WatchError, match="broken: PermissionError: not allowed"):
        watch(WATCHED, aws, observations=(broken, module.links))
    assert aws.figures() == {"/logs/": 1, None: 1}


def test_nothing_is_published_where_nothing_was_seen() -> None:
    aws = Aws([])
    aws.pages = []
    with pytest.raises(WatchError, match="links: IndexError"):
        watch(WATCHED, aws)
    assert aws.published == []


def test_what_is_watched_comes_from_the_environment() -> None:
    assert Watched.from_environment({"JOB": "a", "FILE_SYSTEM_ID": "fs-1", "PATH": "/bin"}).file_system_id == "fs-1"
    with pytest.raises(KeyError, match="FILE_SYSTEM_ID"):
        Watched.from_environment({"JOB": "a"})
