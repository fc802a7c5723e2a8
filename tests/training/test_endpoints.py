"""Stores that are not AWS: what is sent to them, what they turn out to lack, and what publishing does then."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.training import lesser_store as lesser
from tests.training.checkpoint_support import PART, PART_MIB, content, files_of, s3_place, saved
from training_storage.planning.errors import InvalidJobError
from training_storage.training.capability import AWS, WEAKER, Answer, Capabilities
from training_storage.training.capability_probe import probe
from training_storage.training.checkpoint_errors import (
    CapabilityError,
    CheckpointError,
    DeadlineError,
    DeniedError,
    DifferentContentError,
    NoCheckpointError,
    WeakerGuaranteeError,
)
from training_storage.training.checkpoint_s3_place import S3Place
from training_storage.training.contract import Endpoint
from training_storage.training.endpoint import (
    boto3_settings,
    endpoint_of,
    endpoint_of_contract,
    is_aws,
    obstore_settings,
)
from training_storage.training.publish import publish, read_latest
from training_storage.training.restore import restore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from training_storage.testing.local_aws import LocalAws

Quirk = Any


@pytest.fixture
def no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)


def at(url: str, bucket: str, **options: Any) -> S3Place:
    return S3Place.open(
        f"s3://{bucket}/checkpoints/job/",
        endpoint=endpoint_of(url=url),
        part_size_mib=PART_MIB,
        request_timeout_seconds=10,
        **options,
    )


def test_the_local_aws_does_all_that_aws_documents_and_the_probe_leaves_nothing(
    bucket: str, aws_environment: LocalAws
) -> None:
    assert probe(s3_place(bucket, strict=False)) == AWS
    client = aws_environment.client("s3")
    assert client.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
    assert client.list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []


LACKS: dict[str, tuple[Callable[[], Quirk], dict[str, Answer]]] = {
    "create-only-ignored": (lambda: lesser.ignores("if-none-match"), {"create_only": Answer.IGNORED}),
    "create-only-refused": (
        lambda: lesser.refuses("if-none-match"),
        {"create_only": Answer.REFUSED, "multipart_create_only": Answer.REFUSED},
    ),
    "swap-ignored": (lambda: lesser.ignores("if-match"), {"compare_and_swap": Answer.IGNORED}),
    "swap-refused": (lambda: lesser.refuses("if-match"), {"compare_and_swap": Answer.REFUSED}),
    "completion-ignores-the-condition": (
        lambda: lesser.ignores("if-none-match", method="POST"),
        {"multipart_create_only": Answer.IGNORED},
    ),
    "no-parts": (
        lambda: lesser.refuses_parts,
        {"multipart": Answer.REFUSED, "multipart_create_only": Answer.REFUSED},
    ),
    "no-copy": (lambda: lesser.refuses("x-amz-copy-source"), {"copy": Answer.REFUSED}),
    "no-ranges": (lambda: lesser.ignores("range", method="GET"), {"ranged_read": Answer.REFUSED}),
}


@pytest.mark.parametrize("name", LACKS)
def test_the_probe_finds_exactly_what_a_store_lacks(bucket: str, training_aws: LocalAws, name: str) -> None:
    quirk, expected = LACKS[name]
    with lesser.LesserStore.before(training_aws.endpoint_url, quirk()) as store:
        found = probe(at(store.url, bucket), multipart="multipart_create_only" in expected)
    assert {key: getattr(found, key) for key in found.missing()} == expected
    assert found.weaker() == tuple(WEAKER[key] for key in found.missing())


def test_the_probe_notices_reads_that_lag_behind_writes(bucket: str, training_aws: LocalAws) -> None:
    with lesser.LesserStore.before(training_aws.endpoint_url, lesser.Forgetful()) as store:
        assert probe(at(store.url, bucket), multipart=False).read_after_write == Answer.IGNORED


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("create-only-ignored", "create_only, so files are not create-only"),
        ("swap-ignored", r"compare_and_swap, so latest\.json is read, compared and written in two requests"),
        ("completion-ignores-the-condition", "multipart_create_only, so files uploaded in parts are not create-only"),
    ],
)
def test_publishing_refuses_a_weaker_guarantee_names_it_and_takes_it_when_told(
    bucket: str, training_aws: LocalAws, tmp_path: Path, name: str, words: str
) -> None:
    sizes = {"model.pt": 3000} | ({"large.pt": PART + 1} if name.startswith("completion") else {})
    folder = saved(tmp_path, 10, sizes)
    with lesser.LesserStore.before(training_aws.endpoint_url, LACKS[name][0]()) as store:
        with pytest.raises(WeakerGuaranteeError, match=rf"lacks {words}.*--accept-weaker"):
            publish(folder, at(store.url, bucket))
        assert s3_place(bucket).files(folder.name) == {}
        place = at(store.url, bucket, accept_weaker=True)
        published = publish(folder, place)
        assert (published.complete, published.latest_moved) == (True, True)
        assert files_of(restore(place, tmp_path / "back").folder) == files_of(folder)
        # What is there is still compared, and latest still moves forwards only.
        other = saved(tmp_path / "other", 10, sizes | {"model.pt": 2999})
        with pytest.raises(DifferentContentError):
            publish(other, place)
        assert not publish(saved(tmp_path, 5), place).latest_moved


def test_a_store_that_only_small_files_use_is_not_asked_for_parts(
    bucket: str, training_aws: LocalAws, tmp_path: Path
) -> None:
    with lesser.LesserStore.before(training_aws.endpoint_url, lesser.refuses_parts) as store:
        place = at(store.url, bucket)
        assert publish(saved(tmp_path, 10), place).complete
        assert place.capabilities.multipart == Answer.UNKNOWN
        with pytest.raises(WeakerGuaranteeError, match="multipart"):
            publish(saved(tmp_path, 20, {"large.pt": PART + 1}), place)


def test_without_parts_a_large_file_goes_up_whole_when_told_and_a_huge_one_never(
    bucket: str, training_aws: LocalAws, tmp_path: Path
) -> None:
    with lesser.LesserStore.before(training_aws.endpoint_url, lesser.refuses_parts) as store:
        place = at(store.url, bucket, accept_weaker=True)
        folder = saved(tmp_path, 10, {"large.pt": PART + 1})
        assert publish(folder, place).complete
        assert files_of(restore(place, tmp_path / "back").folder) == files_of(folder)
        with pytest.raises(CapabilityError, match=r"a file of 6,000,000,000 bytes is larger than the 5,368,709,120"):
            place.prepare_writing(largest_bytes=6_000_000_000)


def test_stores_that_reject_trailing_checksums_get_none(bucket: str, training_aws: LocalAws, tmp_path: Path) -> None:
    folder = saved(tmp_path, 10, {"model.pt": 3000, "large.pt": PART + 1})
    with lesser.LesserStore.before(training_aws.endpoint_url, lesser.refuses_trailing_checksums) as store:
        place = at(store.url, bucket)
        assert publish(folder, place).complete
        assert files_of(restore(place, tmp_path / "back").folder) == files_of(folder)
        # The store would have refused AWS's way.
        aws_way = S3Place.open(
            f"s3://{bucket}/other/",
            endpoint=endpoint_of(url=store.url, checksums="when_supported"),
            capabilities=AWS,
            part_size_mib=PART_MIB,
        )
        with pytest.raises(CheckpointError, match="InvalidArgument"):
            publish(folder, aws_way)


def test_throttled_writes_are_tried_again(bucket: str, training_aws: LocalAws, tmp_path: Path) -> None:
    folder = saved(tmp_path, 10, {"model.pt": 3000, "large.pt": PART + 1})
    with lesser.LesserStore.before(training_aws.endpoint_url, lesser.throttles(4)) as store:
        place = at(store.url, bucket, capabilities=AWS)
        assert publish(folder, place).complete
        refused = len(store.requests)
    assert files_of(restore(s3_place(bucket), tmp_path / "back").folder) == files_of(folder)
    assert refused >= 4


def test_a_store_that_does_not_answer_ends_in_an_error_with_rank_and_key_in_bounded_time(
    bucket: str, training_aws: LocalAws, tmp_path: Path
) -> None:
    with lesser.LesserStore.before(training_aws.endpoint_url, lesser.hangs(4, at="optimizer.pt")) as store:
        place = S3Place.open(
            f"s3://{bucket}/checkpoints/job/",
            endpoint=endpoint_of(url=store.url),
            capabilities=AWS,
            request_timeout_seconds=5,
        )
        started = time.monotonic()
        with pytest.raises(DeadlineError, match=r"rank 0: s3://.*/step-0000000010/optimizer\.pt was not published"):
            publish(saved(tmp_path, 10), place, timeout_seconds=2)
        assert time.monotonic() - started < 3
    assert s3_place(bucket).read("latest.json") is None


def test_a_page_of_a_proxy_is_no_place_without_checkpoints(bucket: str, training_aws: LocalAws, tmp_path: Path) -> None:
    page = lesser.Refusal(status=200, code="", text="<html>Log in</html>")
    words = r"http://127\.0\.0\.1:[0-9]+ answers, and not as S3 does\. Check the endpoint"
    with (
        lesser.LesserStore.before(training_aws.endpoint_url, lambda _: page) as store,
        pytest.raises(CheckpointError, match=words),
    ):
        restore(s3_place(bucket, url=store.url), tmp_path / "back")
    with pytest.raises(NoCheckpointError):
        restore(s3_place(bucket), tmp_path / "back")


def test_a_missing_permission_is_said_once_with_rank_and_key(
    bucket: str, training_aws: LocalAws, tmp_path: Path
) -> None:
    def denies(request: lesser.Request) -> lesser.Refusal | None:
        denied = request.method == "PUT" and "model.pt" in request.path
        return lesser.Refusal(status=403, code="AccessDenied") if denied else None

    with lesser.LesserStore.before(training_aws.endpoint_url, denies) as store:
        with pytest.raises(DeniedError, match=r"rank 0: s3://.*/step-0000000010/model\.pt"):
            publish(saved(tmp_path, 10), at(store.url, bucket, capabilities=AWS))
        assert sum(request.method == "PUT" and "model.pt" in request.path for request in store.requests) == 1


@pytest.mark.parametrize("at", ["_COMPLETE.json", "latest.json", "list-type", "model.pt"])
def test_an_answer_that_breaks_off_is_asked_for_again(
    bucket: str, training_aws: LocalAws, tmp_path: Path, at: str
) -> None:
    quirk = lesser.CutsAnswers(at, times=2)
    with lesser.LesserStore.before(training_aws.endpoint_url, quirk) as store:
        place = s3_place(bucket, url=store.url)
        for step in (10, 20):
            publish(saved(tmp_path, step), place)
        assert read_latest(place)[0] is not None
        assert restore(place, tmp_path / "back").step == 20
    assert quirk.cut
    assert max(quirk.cut.values()) > 2


def test_an_answer_that_always_breaks_off_is_an_error_with_its_place(
    bucket: str, training_aws: LocalAws, tmp_path: Path
) -> None:
    publish(saved(tmp_path, 10), s3_place(bucket))
    cuts = lesser.CutsAnswers("list-type", times=999)
    with (
        lesser.LesserStore.before(training_aws.endpoint_url, cuts) as store,
        pytest.raises(CheckpointError, match=f"s3://{bucket}/checkpoints/job/: "),
    ):
        restore(s3_place(bucket, url=store.url), tmp_path / "back")


def test_a_bucket_that_does_not_exist_is_no_empty_place(aws_environment: LocalAws, tmp_path: Path) -> None:
    place = s3_place("no-such-bucket-here")
    with pytest.raises(CheckpointError, match=r"no-such-bucket-here"):
        restore(place, tmp_path)


def test_a_lost_answer_to_a_write_that_arrived_counts_as_written(
    bucket: str, training_aws: LocalAws, tmp_path: Path
) -> None:
    """The store takes the first write of each key and says that it failed; the SDK's next try meets its own object."""
    seen: set[str] = set()
    direct = s3_place(bucket)
    folder = saved(tmp_path, 10)

    def loses(request: lesser.Request) -> lesser.Refusal | None:
        name = request.path.rpartition("/")[2]
        if request.method == "PUT" and name == "model.pt" and name not in seen:
            seen.add(name)
            assert direct.create(f"{folder.name}/{name}", content(10, name, 3000))
            return lesser.Refusal(status=503, code="SlowDown")
        return None

    with lesser.LesserStore.before(training_aws.endpoint_url, loses) as store:
        published = publish(folder, at(store.url, bucket, capabilities=AWS))
    assert (published.complete, published.already_there) == (True, 1)


# ---- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, Endpoint(url=None, addressing_style="auto", checksums="when_supported")),
        (
            {"url": "https://oss-cn-hangzhou.example.com/"},
            Endpoint(url="https://oss-cn-hangzhou.example.com", addressing_style="auto", checksums="when_required"),
        ),
        (
            {"url": "https://s3.eu-west-1.amazonaws.com"},
            Endpoint(url="https://s3.eu-west-1.amazonaws.com", addressing_style="auto", checksums="when_supported"),
        ),
        (
            {"url": "http://minio:9000", "addressing_style": "virtual", "checksums": "when_supported"},
            Endpoint(url="http://minio:9000", addressing_style="virtual", checksums="when_supported"),
        ),
    ],
)
def test_what_is_left_out_of_an_endpoint_follows_from_its_url(
    no_endpoint: None, given: dict[str, Any], expected: Endpoint
) -> None:
    assert endpoint_of(**given) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": "minio:9000"}, "endpoint url must be http:// or https://"),
        ({"url": "https://host/bucket"}, "Leave out the bucket and the path"),
        ({"url": "https://me:secret@host"}, "must not hold a user or password"),
        ({"addressing_style": "dns"}, "addressing_style must be one of auto, path, virtual, got: 'dns'"),
        ({"checksums": "never"}, "checksums must be one of when_supported, when_required, got: 'never'"),
    ],
)
def test_a_wrong_endpoint_is_named(no_endpoint: None, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidJobError, match=message) as raised:
        endpoint_of(**given)
    assert "secret" not in str(raised.value)


def test_an_endpoint_that_is_given_beats_the_surroundings(
    bucket: str, training_aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    place = at(training_aws.endpoint_url, bucket)
    assert place.create("key", b"data")
    # Both SDKs: the client sends what comes in parts.
    assert place.client.head_object(Bucket=bucket, Key="checkpoints/job/key")["ContentLength"] == 4


def test_the_surroundings_name_an_endpoint_as_for_every_aws_tool(
    no_endpoint: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:2")
    aws = Endpoint(url=None, addressing_style="auto", checksums="when_supported")
    assert endpoint_of_contract(aws).url == "http://127.0.0.1:2"
    store = Endpoint(url="https://store.example.com", addressing_style="virtual", checksums="when_required")
    assert endpoint_of_contract(store) == store


@pytest.mark.parametrize(
    ("url", "style", "boto3_url", "obstore_url", "virtual"),
    [
        (None, "auto", "https://bucket.s3.amazonaws.com/key", None, True),
        (None, "path", "https://s3.eu-west-1.amazonaws.com/bucket/key", None, False),
        ("https://oss.example.com", "auto", "https://oss.example.com/bucket/key", "https://oss.example.com", False),
        ("https://oss.example.com", "path", "https://oss.example.com/bucket/key", "https://oss.example.com", False),
        (
            "https://oss.example.com",
            "virtual",
            "https://bucket.oss.example.com/key",
            "https://bucket.oss.example.com",
            True,
        ),
    ],
)
def test_both_sdks_address_a_bucket_in_the_same_way(
    no_endpoint: None, url: str | None, style: str, boto3_url: str, obstore_url: str | None, virtual: bool
) -> None:
    import boto3  # noqa: PLC0415

    endpoint = endpoint_of(url=url, addressing_style=style)
    settings = obstore_settings(endpoint, bucket="bucket", region="eu-west-1", express=False, timeout_seconds=5)
    assert settings["config"].get("aws_endpoint_url_s3") == obstore_url
    assert settings["config"]["virtual_hosted_style_request"] == virtual
    session = boto3.Session(aws_access_key_id="x", aws_secret_access_key="x", region_name="eu-west-1")  # noqa: S106
    client = session.client("s3", **boto3_settings(endpoint, connections=4, timeout_seconds=5))
    signed = client.generate_presigned_url("get_object", Params={"Bucket": "bucket", "Key": "key"})
    assert signed.partition("?")[0] == boto3_url


def test_aws_is_trusted_and_everything_else_is_asked(no_endpoint: None) -> None:
    assert is_aws(endpoint_of())
    assert is_aws(endpoint_of(url="https://s3.cn-north-1.amazonaws.com.cn"))
    assert not is_aws(endpoint_of(url="https://amazonaws.com.example.org"))


def test_a_directory_bucket_is_spoken_to_as_one(no_endpoint: None) -> None:
    settings = obstore_settings(endpoint_of(), bucket="b--use1-az4--x-s3", region=None, express=True, timeout_seconds=5)
    assert settings["config"]["s3_express"] is True


def test_unknown_is_neither_had_nor_lacked() -> None:
    assert Capabilities().missing() == ()
    assert not any(Capabilities().has(name) for name in WEAKER)
