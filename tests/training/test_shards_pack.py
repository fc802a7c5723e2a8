"""Packing and verifying: the same samples, the same bytes however often it was killed, and no cut passes unseen."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from multiprocessing import Pool
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.training.loader_support import small_files, uploaded, written
from training_storage import cli
from training_storage.planning.shards import Readers
from training_storage.training.shard_errors import ShardError, ShardInputError
from training_storage.training.shard_index import ShardIndex
from training_storage.training.shard_manifest import build_manifest
from training_storage.training.shard_pack import PackProgress, pack_shards
from training_storage.training.shard_s3 import S3Access
from training_storage.training.shard_source import open_source
from training_storage.training.shard_verify import read_index, verify_shards
from training_storage.training.shard_work import listing_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from training_storage.testing.local_aws import LocalAws

pytest.importorskip("webdataset", reason="pip install 'training-storage[training]'")

# `packed_once` and the slow tests start processes as people do.
pytestmark = pytest.mark.usefixtures("quick_processes")

SAMPLES = 60


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def samples_of(shards: Iterable[Path]) -> Iterator[dict[str, Any]]:
    from webdataset.tariterators import group_by_keys, tar_file_expander  # noqa: PLC0415

    for shard in sorted(shards):
        with shard.open("rb") as stream:
            yield from group_by_keys(tar_file_expander([{"url": str(shard), "stream": stream}]))


def read_back(folder: Path) -> dict[str, bytes]:
    """Return the files of all samples, by path."""
    found: dict[str, bytes] = {}
    for sample in samples_of(folder.glob("*.tar")):
        for field, content in sample.items():
            if not field.startswith("__"):
                path = f"{sample['__key__']}.{field}"
                assert path not in found
                found[path] = content
    return found


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("source"), small_files(SAMPLES))


@pytest.fixture(scope="module")
def packed_once(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("target")
    pack_shards(source=str(source), target=str(target), shards=7, seed=3, processes=2)
    return target


def test_what_is_read_back_is_what_was_packed(packed_once: Path) -> None:
    assert read_back(packed_once) == small_files(SAMPLES)


def test_the_index_counts_sums_and_tells_the_source(source: Path, packed_once: Path) -> None:
    index = read_index(str(packed_once))
    assert (index.source, index.seed, index.samples) == (str(source), 3, SAMPLES)
    assert [shard.samples for shard in index.shards] == [8, 9, 8, 9, 8, 9, 9]
    for shard in index.shards:
        path = packed_once / shard.name
        assert path.stat().st_size == shard.bytes
        assert len(list(samples_of([path]))) == shard.samples
    assert sorted(bytes_of(packed_once)) == ["index.json", *(shard.name for shard in index.shards)]
    assert not (packed_once / ".packing").exists()
    assert ShardIndex.from_json(index.to_json(), place="here") == index


def test_shards_have_the_same_bytes_for_the_same_seed_and_others_for_another(
    source: Path, packed_once: Path, tmp_path: Path
) -> None:
    for name, seed, processes in (("same", 3, 1), ("other", 4, 2)):
        pack_shards(source=str(source), target=str(tmp_path / name), shards=7, seed=seed, processes=processes)
    assert bytes_of(tmp_path / "same") == bytes_of(packed_once)
    keys = [
        [sample["__key__"] for sample in samples_of(place.glob("*.tar"))] for place in (packed_once, tmp_path / "other")
    ]
    assert keys[0] != keys[1]
    assert sorted(keys[0]) == sorted(keys[1])
    assert keys[0] != sorted(keys[0]), "shuffled over all folders"


def test_packing_again_changes_nothing_and_repairs_what_was_damaged(
    source: Path, packed_once: Path, tmp_path: Path
) -> None:
    for path, content in bytes_of(packed_once).items():
        (tmp_path / path).write_bytes(content)
    (tmp_path / "shard-000003.tar").write_bytes(b"damaged")
    (tmp_path / "shard-000005.tar").unlink()
    altered = bytearray((tmp_path / "shard-000006.tar").read_bytes())
    altered[700] ^= 1
    (tmp_path / "shard-000006.tar").write_bytes(altered)
    untouched = (tmp_path / "shard-000001.tar").stat().st_ino
    pack_shards(source=str(source), target=str(tmp_path), shards=7, seed=3, processes=2)
    assert bytes_of(tmp_path) == bytes_of(packed_once)
    assert (tmp_path / "shard-000001.tar").stat().st_ino == untouched


def test_the_number_of_shards_follows_the_readers(source: Path, tmp_path: Path) -> None:
    readers = Readers(nodes=1, accelerators_per_node=2, workers_per_accelerator=2)
    assert len(pack_shards(source=str(source), target=str(tmp_path / "a"), readers=readers, processes=1).shards) == 4
    with pytest.raises(ValueError, match="shards must be at least 4, one for each of 4 readers"):
        pack_shards(source=str(source), target=str(tmp_path / "b"), readers=readers, shards=3)
    assert not (tmp_path / "b").exists()


def test_progress_reaches_the_end(source: Path, tmp_path: Path) -> None:
    told: list[PackProgress] = []
    pack_shards(source=str(source), target=str(tmp_path), shards=4, processes=2, progress=told.append)
    assert told[-1].files == told[-1].of_files == 2 * SAMPLES
    assert told[-1].bytes == told[-1].of_bytes


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"a/7.jpg": b"", "a/README": b"", "b/README": b""}, "'a/README' and 1 more"),
        ({"7.JPG": b"", "7.jpg": b""}, "'7.JPG' and '7.jpg'. Rename one"),
        ({".hidden/7.jpg": b""}, "must hold files to pack, got: none"),
    ],
)
def test_files_that_readers_would_lose_are_refused(tmp_path: Path, files: dict[str, bytes], words: str) -> None:
    written(tmp_path / "in", files)
    with pytest.raises(ShardInputError, match=words):
        pack_shards(source=str(tmp_path / "in"), target=str(tmp_path / "out"), shards=1)
    assert not (tmp_path / "out").exists()


def linked(folder: Path) -> Path:
    """Make a source of links: twice to one folder elsewhere, and to a file."""
    written(folder / "elsewhere", {"cats/1.jpg": b"1", "cats/deep/2.jpg": b"2", "3.jpg": b"3"})
    source = written(folder / "in", {"0.jpg": b"0"})
    (source / "cats").symlink_to(folder / "elsewhere" / "cats")
    (source / "dogs").symlink_to(Path("..", "elsewhere", "cats"))
    (source / "3.jpg").symlink_to(folder / "elsewhere" / "3.jpg")
    return source


WRONG = {
    "dangling": "a link that leads nowhere",
    "itself": "a link that leads nowhere",
    "through a file": "a link that leads nowhere",
    "up": "a link to a folder above it",
    "far up": "a link to a folder above it",
    "pipe": "no regular file",
    "socket": "no regular file",
}


def make_wrong(source: Path, kind: str) -> str:
    """Put something that can be no sample into `source`; return its path."""
    path = source / "bad.jpg"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(os.path.relpath(path))
    elif kind == "far up":
        (source / "a" / "b").mkdir(parents=True)
        path = source / "a" / "b" / "bad.jpg"
        path.symlink_to(source)
    else:
        targets = {"dangling": "/nowhere", "itself": "bad.jpg", "through a file": "0.jpg/x", "up": "."}
        path.symlink_to(targets[kind])
    return str(path.relative_to(source))


def test_links_to_folders_and_files_are_followed(tmp_path: Path) -> None:
    source = linked(tmp_path)
    pack_shards(source=str(source), target=str(tmp_path / "out"), shards=1)
    assert read_back(tmp_path / "out") == {
        "0.jpg": b"0",
        "3.jpg": b"3",
        **{
            f"{animal}/{path}": data
            for animal in ("cats", "dogs")
            for path, data in (("1.jpg", b"1"), ("deep/2.jpg", b"2"))
        },
    }


@pytest.mark.parametrize("kind", WRONG)
def test_what_cannot_be_followed_or_read_is_refused_and_counted_and_never_passed_over(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    source = linked(tmp_path)
    path = make_wrong(source, kind)
    with pytest.raises(ShardInputError, match=rf"got: '{path}' \({WRONG[kind]}.*\) and 0 more in .*--skip-unnamed"):
        pack_shards(source=str(source), target=str(tmp_path / "out"), shards=1)
    assert not (tmp_path / "out").exists()
    assert cli.main(["shards", "pack", "in", "out", "--shards", "1", "--skip-unnamed", "--processes", "1"]) == 0
    assert "files that can be no sample left out: 1" in capsys.readouterr().out
    assert (read_index("out").samples, read_index("out").unnamed) == (6, 1)
    assert cli.main(["shards", "plan", "in", "--nodes", "1", "--accelerators", "1", "--workers", "1"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "6 in 6 files" in told
    assert f"cannot be part of a sample: 1, the first is '{path}' ({WRONG[kind]}" in told


def test_files_left_out_on_request_are_counted(tmp_path: Path) -> None:
    written(tmp_path / "in", {"a/7.jpg": b"7", "a/README": b"", ".git/x.y": b""})
    index = pack_shards(source=str(tmp_path / "in"), target=str(tmp_path / "out"), shards=1, skip_unnamed=True)
    assert (index.samples, index.unnamed, index.hidden) == (1, 1, 1)
    assert read_back(tmp_path / "out") == {"a/7.jpg": b"7"}


def test_names_of_any_kind_come_back(tmp_path: Path) -> None:
    files = {"ä/ö.jpg": b"1", f"{'long' * 40}/{'name' * 40}.txt": b"2", "b c/7.x y": b"", "_.7": b"3", "a/b._x": b"4"}
    written(tmp_path / "in", files)
    odd = os.fsdecode(b"not-utf8-\xff.bin")
    (tmp_path / "in" / odd).write_bytes(b"5")
    pack_shards(source=str(tmp_path / "in"), target=str(tmp_path / "out"), shards=2)
    assert read_back(tmp_path / "out") == {**files, odd: b"5"}


@pytest.mark.parametrize("stranger", ["notes.txt", "shard-000000.tar", "index.json"])
def test_nothing_of_others_is_replaced(source: Path, tmp_path: Path, stranger: str) -> None:
    text = ShardIndex.to_json(read_index_of_another(tmp_path)) if stranger == "index.json" else "theirs"
    target = tmp_path / "target"
    written(target, {stranger: text.encode()})
    with pytest.raises(ShardInputError, match="the target must be empty or hold an unfinished packing of the same"):
        pack_shards(source=str(source), target=str(target), shards=7)
    assert bytes_of(target) == {stranger: text.encode()}
    assert [path.name for path in target.iterdir()] == [stranger]


def read_index_of_another(folder: Path) -> ShardIndex:
    written(folder / "other", {"1.a": b""})
    return pack_shards(source=str(folder / "other"), target=str(folder / "packed"), shards=1)


def test_a_file_that_changes_after_it_was_listed_stops_the_packing(tmp_path: Path) -> None:
    source = written(tmp_path / "in", small_files(40))

    def grow(progress: PackProgress) -> None:
        if progress.of_files is None:
            (source / "part-0" / "000000.bin").write_bytes(b"grown" * 100)

    with pytest.raises(ShardError, match="'part-0/000000.bin' has changed since it was listed"):
        pack_shards(source=str(source), target=str(tmp_path / "out"), shards=4, progress=grow)
    assert not (tmp_path / "out" / "index.json").exists()
    # What was begun with other contents is not gone on with.
    with pytest.raises(ShardInputError, match="of the same source"):
        pack_shards(source=str(source), target=str(tmp_path / "out"), shards=4)


def test_two_packings_at_once_into_one_folder_are_refused(source: Path, tmp_path: Path) -> None:
    refused: list[str] = []

    def again(progress: PackProgress) -> None:
        if progress.of_files is not None and not refused:
            with pytest.raises(ShardInputError, match="being packed by another process") as raised:
                pack_shards(source=str(source), target=str(tmp_path / "out"), shards=2)
            refused.append(str(raised.value))

    pack_shards(source=str(source), target=str(tmp_path / "out"), shards=2, processes=1, progress=again)
    assert refused


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"seed": -1}, "seed must be a whole number from 0"),
        ({"shards": 61}, "shards must be a whole number from 1 to 60, the number of samples, got: 61"),
        ({"shards": None}, "either shards or readers"),
        ({"processes": 0}, "processes must be a whole number from 1"),
        ({"target": "s3://"}, "an S3 place must be s3://BUCKET/PREFIX/"),
        ({"target": "{source}/out"}, "the target must lie outside of the source"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    source: Path, tmp_path: Path, arguments: dict[str, Any], words: str
) -> None:
    wanted = {"source": str(source), "target": str(tmp_path / "out"), "shards": 2, **arguments}
    wanted["target"] = wanted["target"].format(source=source)
    with pytest.raises(ShardInputError, match=words):
        pack_shards(**wanted)


# Killed anywhere, run again: the same bytes.

_KILLS = 4


@pytest.mark.training
def test_a_packing_killed_at_random_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    source = written(tmp_path / "in", small_files(160, size=20_000))
    pack_shards(source=str(source), target=str(tmp_path / "whole"), shards=24, seed=1, processes=2)
    target, chance = tmp_path / "killed", random.Random(7)  # noqa: S311 - no secret
    command = [
        sys.executable, "-m", "training_storage.cli", "shards", "pack", str(source), str(target),
        "--shards", "24", "--seed", "1", "--processes", "2",
    ]  # fmt: skip
    seen = []
    for _ in range(_KILLS):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        before = len(list(target.glob("*.tar"))) if target.exists() else 0
        wait_for_growth(process, target, before)
        time.sleep(chance.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert process.stderr is not None
        process.stderr.close()
        seen.append(len(list(target.glob("*.tar"))))
        assert not (target / "index.json").exists() or len(list(target.glob("*.tar"))) == 24
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "160 samples in 24 shards" in done.stdout
    assert bytes_of(target) == bytes_of(tmp_path / "whole")
    assert not (target / ".packing").exists()
    assert 0 < seen[0] < 24, "it was killed half-way"


def wait_for_growth(process: subprocess.Popen[bytes], target: Path, before: int) -> None:
    """Wait until one more shard is there, or the packing has ended."""
    deadline = time.monotonic() + 30
    while process.poll() is None and not (target.exists() and len(list(target.glob("*.tar"))) > before):
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.training
def test_what_a_killed_packing_left_in_the_work_folder_is_removed_by_the_next(tmp_path: Path) -> None:
    source, work = written(tmp_path / "in", small_files(160, size=20_000)), tmp_path / "work"
    work.mkdir()
    command = [
        sys.executable, "-m", "training_storage.cli", "shards", "pack", str(source), str(tmp_path / "out"),
        "--shards", "24", "--processes", "1", "--work", str(work),
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for_growth(process, tmp_path / "out", 0)
    process.kill()
    process.wait()
    assert [path.name.startswith("shards-listing-") for path in work.iterdir()] == [True]
    with listing_folder(str(work)) as live:
        subprocess.run(command, capture_output=True, check=True)
        assert list(work.iterdir()) == [live], "that of a packing that is at work stays"
    assert list(work.iterdir()) == []


def test_a_work_folder_that_is_none_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ShardInputError, match="--work must be a folder that exists and can be written, got: '/nowhere'"
    ):
        pack_shards(source=str(source), target=str(tmp_path / "out"), shards=1, work="/nowhere")


# Verifying.


def test_sixty_random_cuts_are_all_found(packed_once: Path, tmp_path: Path) -> None:
    chance = random.Random(60)  # noqa: S311 - no secret
    names = [path.name for path in packed_once.glob("*.tar")]
    for path, content in bytes_of(packed_once).items():
        (tmp_path / path).write_bytes(content)
    for _ in range(60):
        shard = tmp_path / chance.choice(names)
        whole = shard.read_bytes()
        shard.write_bytes(whole[: chance.randrange(len(whole))])
        _, findings = verify_shards(str(tmp_path))
        assert [(found.name, found.kind) for found in findings] == [(shard.name, "truncated")]
        shard.write_bytes(whole)
    assert verify_shards(str(tmp_path))[1] == ()


def test_altered_longer_missing_and_extra_shards_are_found(packed_once: Path, tmp_path: Path) -> None:
    for path, content in bytes_of(packed_once).items():
        (tmp_path / path).write_bytes(content)
    one = tmp_path / "shard-000001.tar"
    one.write_bytes(bytes([one.read_bytes()[0] ^ 1]) + one.read_bytes()[1:])
    (tmp_path / "shard-000002.tar").write_bytes((tmp_path / "shard-000002.tar").read_bytes() + b"\0")
    (tmp_path / "shard-000003.tar").unlink()
    (tmp_path / "shard-000099.tar").write_bytes(b"")
    kinds = ["altered", "longer", "missing", "extra"]
    names = [f"shard-{number:06d}.tar" for number in (1, 2, 3, 99)]
    _, findings = verify_shards(str(tmp_path))
    assert [(found.name, found.kind) for found in findings] == list(zip(names, kinds, strict=True))
    _, by_size = verify_shards(str(tmp_path), sizes_only=True)
    assert [found.kind for found in by_size] == kinds[1:]


def test_a_place_without_an_index_says_what_to_do(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ShardInputError, match="must hold the index.json of a packed data set, got: none. Pack first"):
        verify_shards(str(source))
    written(tmp_path, {".packing/run.json": b"{}"})
    with pytest.raises(ShardInputError, match="is not finished: run the same `shards pack` again"):
        verify_shards(str(tmp_path))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda values: values.update(schema_version=2), "schema_version of .* must be 1, got: 2"),
        (lambda values: values.update(format="other"), "must be an index that `shards pack` wrote"),
        (lambda values: values["shards"].pop(), "must be the sums over its shards"),
        (lambda values: values["shards"].pop(0), "numbered from 0 without a gap"),
        (lambda values: values["shards"][0].update(bytes=-1), r"shards\[\].bytes must be a whole number from 1"),
        (lambda values: values["shards"][0]["checksum"].update(algorithm="md5"), "must be a sha256"),
        (lambda values: values["shards"][0].update(name="../x.tar"), r"shards\[\].name must be like shard-000007.tar"),
    ],
)
def test_an_index_that_is_none_is_refused(packed_once: Path, change: Any, words: str) -> None:
    values = json.loads((packed_once / "index.json").read_text(encoding="utf-8"))
    change(values)
    with pytest.raises(ShardInputError, match=words):
        ShardIndex.from_json(json.dumps(values), place="index.json")


def test_the_commands_pack_verify_and_end_with_1_where_something_is_wrong(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out"
    assert cli.main(["shards", "pack", str(source), str(target), "--shards", "4", "--seed", "7"]) == 0
    assert capsys.readouterr().out.startswith("60 samples in 4 shards, ")
    assert cli.main(["shards", "verify", str(target)]) == 0
    assert capsys.readouterr().out.endswith("all as the index says\n")
    (target / "shard-000002.tar").unlink()
    assert cli.main(["shards", "verify", str(target)]) == 1
    assert capsys.readouterr().out.startswith("shard-000002.tar  missing: ")
    assert cli.main(["shards", "verify", str(target), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["kind"] == "missing"
    assert cli.main(["shards", "pack", str(source), str(target), "--shards", "5"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


# S3.


def test_a_prefix_is_packed_into_a_prefix_and_verified(
    aws_environment: LocalAws, bucket: str, source: Path, packed_once: Path, tmp_path: Path
) -> None:
    client = aws_environment.client("s3")
    uri = uploaded(aws_environment, bucket, "raw/", source)
    target = f"s3://{bucket}/datasets/"
    client.put_object(Bucket=bucket, Key="raw/", Body=b"")
    index = pack_shards(source=uri, target=target, shards=7, seed=3, processes=2, work=str(tmp_path))
    for shard, local in zip(index.shards, read_index(str(packed_once)).shards, strict=True):
        assert shard == local, "the same samples make the same shards, wherever they come from"
    assert index.hidden == 1
    assert verify_shards(target)[1] == ()
    assert list(tmp_path.iterdir()) == [], "nothing waits in the work folder"
    stamps = modified(client, bucket)
    pack_shards(source=uri, target=target, shards=7, seed=3, processes=2, work=str(tmp_path))
    assert modified(client, bucket) == stamps, "nothing is written twice"
    client.put_object(Bucket=bucket, Key="datasets/shard-000004.tar", Body=b"altered")
    client.delete_object(Bucket=bucket, Key="datasets/shard-000005.tar")
    assert [found.kind for found in verify_shards(target)[1]] == ["truncated", "missing"]
    with pytest.raises(ShardInputError, match="'shard-000004.tar' in s3://"):
        pack_shards(source=uri, target=target, shards=7, seed=3, work=str(tmp_path))


def modified(client: Any, bucket: str) -> dict[str, Any]:
    listed = client.list_objects_v2(Bucket=bucket, Prefix="datasets/")["Contents"]
    return {item["Key"]: item["LastModified"] for item in listed}


def test_an_unfinished_prefix_is_gone_on_with(
    aws_environment: LocalAws, bucket: str, source: Path, tmp_path: Path
) -> None:
    client = aws_environment.client("s3")
    target = f"s3://{bucket}/datasets/"
    whole = pack_shards(source=str(source), target=target, shards=7, processes=2, work=str(tmp_path))
    for key in ("index.json", "shard-000001.tar", "shard-000006.tar"):
        client.delete_object(Bucket=bucket, Key=f"datasets/{key}")
    stamps = modified(client, bucket)
    assert pack_shards(source=str(source), target=target, shards=7, processes=2, work=str(tmp_path)) == whole
    assert stamps.items() <= modified(client, bucket).items()
    assert verify_shards(target)[1] == ()


def test_large_shards_are_uploaded_in_parts_and_never_over_another(
    aws_environment: LocalAws, bucket: str, tmp_path: Path
) -> None:
    source = written(tmp_path / "in", {f"{number}.bin": bytes([number]) * 2**20 for number in range(40)})
    target = f"s3://{bucket}/large/"
    index = pack_shards(source=str(source), target=target, shards=1, work=str(tmp_path))
    head = aws_environment.client("s3").head_object(Bucket=bucket, Key="large/shard-000000.tar")
    assert head["ETag"].strip('"').endswith("-3"), "in three parts"
    assert head["ContentLength"] == index.bytes
    assert verify_shards(target)[1] == ()


def test_an_object_that_changes_after_it_was_listed_stops_the_packing(
    aws_environment: LocalAws, bucket: str, source: Path, tmp_path: Path
) -> None:
    uri = uploaded(aws_environment, bucket, "raw/", source)

    def replace(progress: PackProgress) -> None:
        if progress.of_files is None:
            # Of the same size: only the ETag tells.
            body = b"x" * (source / "part-0" / "000000.bin").stat().st_size
            aws_environment.client("s3").put_object(Bucket=bucket, Key="raw/part-0/000000.bin", Body=body)

    with pytest.raises(ShardError, match="'part-0/000000.bin' has changed since it was listed"):
        pack_shards(source=uri, target=str(tmp_path / "out"), shards=2, progress=replace)


def test_a_bucket_that_is_not_there_is_one_line(
    aws_environment: LocalAws, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["shards", "pack", "s3://not-there/raw/", str(tmp_path), "--shards", "2"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "listing of s3://not-there/raw/ was refused (NoSuchBucket" in error


def test_a_listing_of_many_pages_is_read_to_its_end(aws_environment: LocalAws, bucket: str) -> None:
    client = aws_environment.client("s3")
    for number in range(1005):
        client.put_object(Bucket=bucket, Key=f"many/{number:04d}.txt", Body=b"")
    source = open_source(f"s3://{bucket}/many/", access=S3Access())
    assert [file.path for file in source.files()] == [f"{number:04d}.txt" for number in range(1005)]


# 200,000 files.

_MANY, _FOLDERS = 200_000, 200


def many_files(folder: str) -> None:
    """Write a share of the files: two to a sample, every other one empty, as labels in names are."""
    Path(folder).mkdir(parents=True)
    first = int(Path(folder).name) * _MANY // _FOLDERS
    for number in range(first, first + _MANY // _FOLDERS, 2):
        Path(folder, f"{number:06d}.bin").write_bytes(b"%d" % (number * 7919))
        Path(folder, f"{number:06d}.{number % 10}").touch()


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[Path]:
    """A folder where making so many files is fast: in memory where there is enough of it."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of its own in there
    if not memory.is_dir() or shutil.disk_usage(memory).free < 2 * 2**30:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.mark.training
def test_two_hundred_thousand_files_come_back_as_the_same_samples(roomy: Path) -> None:
    source, target = roomy / "in", roomy / "out"
    with Pool(2) as pool:
        pool.map(many_files, [str(source / f"{number:03d}") for number in range(_FOLDERS)])
    index = pack_shards(source=str(source), target=str(target), shards=16, seed=1)
    assert sum(shard.files for shard in index.shards) == _MANY
    assert index.samples == _MANY // 2
    found: Counter[tuple[str, bytes, str]] = Counter()
    for sample in samples_of(target.glob("*.tar")):
        content = sample["bin"]
        (label,) = (field for field in sample if len(field) == 1)
        found[sample["__key__"], content, label] += 1
    expected = Counter(
        (f"{number * _FOLDERS // _MANY:03d}/{number:06d}", b"%d" % (number * 7919), str(number % 10))
        for number in range(0, _MANY, 2)
    )
    assert found == expected
    assert verify_shards(str(target))[1] == ()


def test_the_listing_is_kept_on_disk_and_not_in_memory(tmp_path: Path) -> None:
    source = written(tmp_path / "in", small_files(SAMPLES))
    opened = open_source(str(source), access=S3Access())
    manifest = build_manifest(opened, path=tmp_path / "manifest", seed=0, part_bytes=2**23)
    cuts = manifest.cuts(4)
    parts = [
        [sample.key for sample in manifest.samples(begin, end)]
        for begin, end in zip(cuts, [*cuts[1:], None], strict=True)
    ]
    assert [len(part) for part in parts] == [15] * 4
    assert len({key for part in parts for key in part}) == SAMPLES
