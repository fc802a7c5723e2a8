"""The shard plan: enough shards for every reader, as many for each, of the right size where the data allow."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.loader_support import slow_store, uploaded, written
from training_storage import cli
from training_storage.planning.errors import InvalidJobError
from training_storage.planning.sample_names import is_hidden, sample_name
from training_storage.planning.sample_survey import DataSummary, Survey
from training_storage.planning.shards import Readers, plan_shards
from training_storage.training.endpoint import endpoint_of
from training_storage.training.shard_pack import pack_shards
from training_storage.training.shard_s3 import S3Access
from training_storage.training.shard_source import SourceFile, open_source
from training_storage.training.shard_survey import survey

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from training_storage.testing.local_aws import LocalAws

GB = 10**9
MIB = 2**20


def data(samples: int, size: int, *, files_per_sample: int = 1) -> DataSummary:
    """Return a data set of equal files."""
    files = samples * files_per_sample
    return DataSummary(
        files=files,
        bytes=files * size,
        samples=samples,
        smallest_bytes=size,
        largest_bytes=size,
        tar_bytes=files * (512 + math.ceil(size / 512) * 512),
        range_requests=files * max(1, math.ceil(size / (8 * MIB))),
        distribution=(),
    )


def readers(nodes: int, accelerators: int = 1, workers: int = 1) -> Readers:
    return Readers(nodes=nodes, accelerators_per_node=accelerators, workers_per_accelerator=workers)


COUNTS = st.integers(1, 40)


@given(samples=st.integers(1, 10**8), size=st.integers(0, 10**8), nodes=COUNTS, accelerators=COUNTS, workers=COUNTS)
def test_every_reader_gets_as_many_shards_and_none_is_empty(
    samples: int, size: int, nodes: int, accelerators: int, workers: int
) -> None:
    given_data, who = data(samples, size), readers(nodes, accelerators, workers)
    if samples < who.count:
        with pytest.raises(InvalidJobError, match="at least one sample for each"):
            plan_shards(data=given_data, readers=who)
        return
    plan = plan_shards(data=given_data, readers=who)
    assert plan.shards % who.count == 0
    assert who.count <= plan.shards <= samples
    largest = given_data.tar_bytes / plan.shards
    if plan.shards < samples - samples % who.count:
        assert plan.shard_bytes <= 4 * GB
    if plan.shards > who.count:
        assert largest >= 1.99 * GB, "more than one shard a reader only where each is large enough"


@pytest.mark.parametrize(
    ("samples", "size", "who", "shards"),
    [
        # 1 TB for 64 readers: 4 each of 3.9 GB; 2 each would have 7.8.
        (10**7, 100_000, readers(1, 8, 8), 256),
        # 200 GB for 64 readers: one each of 3.1 GB.
        (2 * 10**6, 100_000, readers(1, 8, 8), 64),
        # 1 GB for 64 readers: no reader without a shard.
        (10**4, 100_000, readers(1, 8, 8), 64),
        (10**6, 100_000, readers(1, 1, 1), 26),
    ],
)
def test_plans_worked_out_by_hand(samples: int, size: int, who: Readers, shards: int) -> None:
    assert plan_shards(data=data(samples, size), readers=who).shards == shards


@pytest.mark.parametrize(
    ("shards", "words"),
    [
        (3, "shards must be at least 4, one for each of 4 readers .*, got: 3"),
        (6, "shards must be a multiple of 4, .*, got: 6. Use 4 or 8"),
        (0, "shards must be at least 4"),
        (1000, "shards must be at most 100, for no shard may be empty, got: 1000"),
    ],
)
def test_a_number_that_leaves_readers_without_shards_is_refused(shards: int, words: str) -> None:
    with pytest.raises(InvalidJobError, match=words):
        plan_shards(data=data(100, 1000), readers=readers(1, 1, 4), shards=shards)


def test_a_number_that_was_asked_for_is_taken_and_its_size_is_said() -> None:
    plan = plan_shards(data=data(10**6, 100_000), readers=readers(1, 1, 4), shards=4)
    assert plan.shards == 4
    assert any("more than 4 GB" in warning for warning in plan.warnings)


def test_requests_and_their_price_before_and_after() -> None:
    plan = plan_shards(data=data(10**6, 100_000, files_per_sample=2), readers=readers(1, 8, 8), region="us-east-1")
    # One GET a file, at 0.0004 USD per 1,000; 200 GB in parts of 8 MiB.
    assert plan.before.gets == 2 * 10**6
    assert plan.before.usd == pytest.approx(0.80)
    # And one HEAD for each shard.
    assert plan.after.gets == plan.shards * (1 + math.ceil(plan.shard_bytes / (8 * MIB)))
    assert 23_000 < plan.after.gets < 26_000
    assert plan.before.seconds_at_request_limit == pytest.approx(2 * 10**6 / 5500)
    # 31,250 files a reader, 0.1 s each, against one shard.
    assert plan.before.first_byte_seconds_per_reader == pytest.approx(3125)
    assert plan.after.first_byte_seconds_per_reader == pytest.approx(0.1)
    elsewhere = plan_shards(data=data(10**6, 100_000), readers=readers(1), region="ap-northeast-1")
    assert elsewhere.before.usd is None
    express = plan_shards(data=data(10**6, 100_000), readers=readers(1), region="us-east-1", express=True)
    assert express.before.usd == pytest.approx(10**6 * 0.00003 / 1000)


@pytest.mark.parametrize("stored", [True, False])
def test_the_plan_counts_the_requests_that_packing_makes(
    aws_environment: LocalAws, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    pytest.importorskip("webdataset", reason="pip install 'training-storage[training]'")
    # One shard in one request, and shards in parts: of 10 and of 40 MiB.
    for shards, files in ((2, 20), (1, 40)):
        small = {f"{number:02d}.bin": bytes([number]) * MIB for number in range(files)}
        source = str(written(tmp_path / f"in-{shards}", small))
        if stored:
            source = uploaded(aws_environment, bucket, f"raw-{shards}/", tmp_path / f"in-{shards}")
        with slow_store(aws_environment.endpoint_url, latency_s=0) as store:
            access = S3Access(region="us-east-1", endpoint=endpoint_of(url=store.url))
            data = survey(open_source(source, access=access), part_bytes=8 * MIB)
            plan = plan_shards(data=data, readers=readers(1), shards=shards, stored=stored)
            store.requests.clear()
            target = f"s3://{bucket}/packed-{shards}/"
            pack_shards(source=source, target=target, shards=shards, processes=2, access=access, work=str(tmp_path))
        # The plan is for AWS, whose conditions need no trial.
        asked = [one for one in store.requests if "/.probe-" not in one[1]]
        listed = [path for method, path in asked if method == "GET" and "list-type=2" in path]
        reads = [one for one in asked if one[0] in ("GET", "HEAD") and one[1] not in listed]
        writes = [one for one in asked if one[0] in ("PUT", "POST")]
        assert len(reads) == plan.packing.gets
        assert len(writes) + len(listed) == plan.packing.puts


@pytest.mark.parametrize("value", [0, -1, True, 1.5, 10**8])
def test_readers_are_counts(value: Any) -> None:
    with pytest.raises(InvalidJobError, match=f"nodes must be a whole number from 1 .*, got: {value!r}"):
        Readers(nodes=value, accelerators_per_node=1, workers_per_accelerator=1)


# Names: WebDataset's own rule decides.

PATHS = st.lists(
    st.text(alphabet="ab._-é", min_size=1, max_size=6).filter(lambda part: part not in (".", "..")),
    min_size=1,
    max_size=3,
).map("/".join)


@pytest.fixture(scope="module")
def tariterators() -> Any:
    return pytest.importorskip("webdataset.tariterators", reason="pip install 'training-storage[training]'")


@given(path=PATHS)
def test_keys_and_fields_are_those_that_webdataset_reads(tariterators: Any, path: str) -> None:
    if is_hidden(path):
        return
    key, field = tariterators.base_plus_ext(path)
    name = sample_name(path)
    seen = not (path.startswith("__") and (tariterators.re.match(r"__[^/]*__($|/)", path)))
    if name is not None:
        assert (name.key, name.field) == (key, field)
        assert seen
    elif key is not None and field and seen:
        # What webdataset keeps for itself: fields and, outside of folders, files between double underscores.
        assert (field.startswith("__") and field.endswith("__")) or (path.startswith("__") and path.endswith("__"))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("cats/7.jpg", ("cats/7", "jpg")),
        ("cats/7.seg.png", ("cats/7", "seg.png")),
        ("a.b/c.d", ("a.b/c", "d")),
        ("README", None),
        ("a/.hidden.txt", None),
        ("7.", None),
        ("__meta__/7.jpg", None),
        ("7.__key__", None),
        ("new\nline.jpg", None),
    ],
)
def test_names(path: str, expected: tuple[str, str] | None) -> None:
    assert sample_name(path) == expected


# The survey: one pass, any size.


@given(st.lists(st.tuples(PATHS, st.integers(0, 10**7)), max_size=40, unique_by=lambda file: file[0]))
def test_a_survey_counts_like_a_list_would(files: list[tuple[str, int]]) -> None:
    found = Survey(part_bytes=8 * MIB)
    # The order of S3.
    for path, size in sorted(files, key=lambda file: file[0].encode()):
        found.add(path, size)
    summary = found.summary()
    named = [(name, size) for path, size in files if not is_hidden(path) and (name := sample_name(path))]
    assert summary.samples == len({name.key for name, _ in named})
    assert summary.files == len(named) == sum(part.files for part in summary.distribution)
    assert summary.bytes == sum(size for _, size in named) == sum(part.bytes for part in summary.distribution)
    assert summary.hidden + summary.unnamed + summary.files == len(files)
    for part in summary.distribution:
        inside = [
            size for _, size in named if part.up_to_bytes // 2 < size <= part.up_to_bytes or size == part.up_to_bytes
        ]
        assert part.files == len(inside)


def test_a_survey_of_a_million_files_holds_almost_nothing() -> None:
    found = Survey(part_bytes=8 * MIB)
    for number in range(20_000):
        found.add(f"{number // 100:04d}/{number:08d}.jpg", 1000)
        found.add(f"{number // 100:04d}/{number:08d}.txt", 10)
    assert found.summary().samples == 20_000
    assert len(found._open) == 1


class Unordered:
    """A listing as directory buckets of S3 Express give it."""

    name, requests_at_once, is_ordered = "express", 1, False

    def files(self) -> Iterator[SourceFile]:
        for extension in ("jpg", "txt"):
            for number in range(50):
                yield SourceFile(f"a/{number}.{extension}", 10, "")

    def reader(self) -> Any:
        raise NotImplementedError


def test_samples_of_a_listing_without_order_are_counted_right() -> None:
    assert survey(Unordered(), part_bytes=8 * MIB).samples == 50


# The command.


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(["shards", "plan", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        f"{kind}/{number}.{extension}": b"x" * 100
        for kind in "ab"
        for number in range(8)
        for extension in ("jpg", "cls")
    }
    return written(tmp_path / "data", {**files, ".git/config": b"", "a/README": b""})


def test_the_command_says_how_many_and_why(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = planned(capsys, str(folder), "--nodes", "2", "--accelerators", "2", "--workers", "2")
    assert (code, err) == (0, "")
    for words in (
        "8 shards of about",
        "16 in 32 files",
        "8 (nodes × accelerators × workers: 2 × 2 × 2), 1 shard each",
        "fewer shards would leave readers without any",
        "Files that cannot be part of a sample: 1, the first is 'a/README'",
        "Hidden files, which are left out: 1.",
    ):
        assert words in " ".join(out.split())
    assert all(len(line) <= 100 for line in out.splitlines())


def test_the_command_prints_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = planned(capsys, str(folder), "--nodes", "1", "--accelerators", "2", "--workers", "2", "--json")
    values = json.loads(out)
    assert code == 0
    assert (values["schema_version"], values["shards"], values["readers"]["count"]) == (1, 4, 4)
    assert values["data"]["samples"] == 16
    assert values["source"] == str(folder)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nodes", "1", "--accelerators", "1", "--workers", "4", "--shards", "3"], "shards must be at least 4"),
        (["--nodes", "1", "--accelerators", "1"], "--workers is missing"),
        (["--nodes", "0", "--accelerators", "1", "--workers", "1"], "--nodes must be a whole number"),
        (["--nodes", "99", "--accelerators", "1", "--workers", "1"], "got: 16 samples"),
        (["--contract", "/nowhere.json"], "no storage contract at '/nowhere.json'"),
    ],
)
def test_what_cannot_be_planned_is_one_line_and_exit_code_2(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    code, out, err = planned(capsys, str(folder), *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err


def test_a_source_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = planned(capsys, "/nowhere", "--nodes", "1", "--accelerators", "1", "--workers", "1")
    assert code == 2
    assert "the source must be a folder or s3://BUCKET/PREFIX/, got: '/nowhere'" in err
