"""S3 directory buckets: made by CloudFormation, listed and used through boto3."""

# ruff: noqa: SLF001 - ministack has no public way in; names.py lists what is reached for

import datetime as dt
import json
import re
import secrets
from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

from ministack.core import responses
from ministack.services import ec2, s3

from training_storage.planning import catalog, legality
from training_storage.testing.local_aws.registry_resource import Behaviour, Made, Place
from training_storage.testing.local_aws.resource_attributes import partition_of

NOT_EMPTY = "The bucket you tried to delete is not empty"
_TYPE = "AWS::S3Express::DirectoryBucket"
_ZONE_ID = re.compile(r"[a-z]{2,4}\d(-[a-z]{3}\d)?-az\d")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*[a-z0-9]")
_LENGTHS = range(3, 64)
_SESSION_MINUTES = 5
_NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
_XML = {"Content-Type": "application/xml"}
_NO_SUCH_BUCKET = b"<Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message></Error>"


def behaviours() -> dict[str, Behaviour]:
    """Return the behaviour of directory buckets and their policies."""
    return {
        _TYPE: Behaviour(create=_create, delete=_delete),
        "AWS::S3Express::BucketPolicy": Behaviour(create=_create_policy, delete=_delete_policy, update=_update_policy),
    }


def checked_name(*, name: str, location: str) -> None:
    """Refuse a name or zone that breaks the naming rules of directory buckets.

    Source: Amazon S3 user guide, directory bucket naming rules: ``base--zoneid--x-s3``, 3 to 63 characters.
    """
    if _ZONE_ID.fullmatch(location) is None:
        message = f"Invalid LocationName: {location}. It must be an Availability Zone ID such as use1-az4, not a name."
        raise ValueError(message)
    if len(name) not in _LENGTHS or _NAME.fullmatch(name) is None or not name.endswith(f"--{location}--x-s3"):
        message = (
            f"The specified bucket is not valid: {name}. It must end with --{location}--x-s3 (3 to 63 characters)."
        )
        raise ValueError(message)


def is_directory_bucket(name: str) -> bool:
    """Whether a bucket is a directory bucket that exists."""
    return name.endswith("--x-s3") and s3._buckets.get(name) is not None


def check_empty(name: str) -> None:
    """Refuse to delete a bucket with objects, versions or unfinished uploads in it."""
    bucket = s3._buckets.get(name)
    if bucket is None:
        return
    uploads = any(upload.get("bucket") == name for upload in s3._multipart_uploads.values())
    versions = any(key[0] == name and kept for key, kept in s3._object_versions.items())
    if bucket["objects"] or versions or (uploads and is_directory_bucket(name)):
        detail = ". You must delete all versions in the bucket." if s3._bucket_versioning.get(name) else ""
        raise ValueError(NOT_EMPTY + detail)


async def handle_request(
    method: str, path: str, headers: dict[str, str], body: bytes, query: dict[str, Any]
) -> tuple[int, dict[str, str], bytes]:
    """Answer a request signed for s3express: sessions, the list of directory buckets, and objects."""
    if method == "GET" and path.strip("/") == "":
        return 200, dict(_XML), _listing()
    bucket = path.strip("/").split("/", 1)[0]
    if method == "GET" and "session" in query:
        if not is_directory_bucket(bucket):
            return 404, dict(_XML), _NO_SUCH_BUCKET
        return 200, dict(_XML), _session()
    if method == "DELETE" and path.strip("/") == bucket and not query:
        try:
            check_empty(bucket)
        except ValueError as error:
            text = f"<Error><Code>BucketNotEmpty</Code><Message>{escape(str(error))}</Message></Error>"
            return 409, dict(_XML), text.encode()
    answer: tuple[int, dict[str, str], bytes] = await s3.handle_request(method, path, headers, body, query)
    return answer


def without_directory_buckets(listing: bytes) -> bytes:
    """Drop directory buckets from an answer of ListBuckets: AWS lists them apart."""
    return re.sub(rb"<Bucket>(?:(?!</Bucket>).)*--x-s3</Name>.*?</Bucket>", b"", listing, flags=re.DOTALL)


def _create(properties: Mapping[str, Any], place: Place) -> Made:
    location = str(properties["LocationName"])
    base = f"{place.stack_name}-{place.logical_id}".lower().strip("-").replace("_", "-")
    # A name that CloudFormation generates ends in something random, so that a second bucket never meets the first.
    suffix = f"-{secrets.token_hex(6)}--{location}--x-s3"
    name = str(properties.get("BucketName") or base[: max(_LENGTHS) - len(suffix)].strip("-") + suffix)
    checked_name(name=name, location=location)
    if s3._buckets.get(name) is not None:
        message = f"{name} already exists"
        raise ValueError(message)
    zone_name = ec2._zone_name_for_az_id(location)
    if zone_name is None:
        message = f"Invalid LocationName: {location} is not a zone of {place.region}."
        raise ValueError(message)
    found = legality.check_directory_bucket(
        legality.read_directory_bucket({**properties, "BucketName": name}, region=catalog.regions().get(place.region))
    )
    if found:
        raise ValueError("; ".join(finding.message for finding in found))
    created = responses.now_iso()
    s3._buckets[name] = {"created": created, "objects": {}, "region": place.region, "location": location}
    arn = f"arn:{partition_of(place.region)}:s3express:{place.region}:{place.account}:bucket/{name}"
    return Made(physical_id=name, attributes={"Arn": arn, "AvailabilityZoneName": zone_name, "BucketName": name})


def _delete(physical_id: str, _properties: Mapping[str, Any]) -> None:
    check_empty(physical_id)
    s3._buckets.pop(physical_id, None)
    s3._bucket_policies.pop(physical_id, None)


def _create_policy(properties: Mapping[str, Any], _place: Place) -> Made:
    bucket = str(properties["Bucket"])
    if not is_directory_bucket(bucket):
        message = f"The specified bucket does not exist: {bucket}"
        raise ValueError(message)
    s3._bucket_policies[bucket] = _policy_text(properties["PolicyDocument"])
    return Made(physical_id=bucket)


def _update_policy(physical_id: str, _old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    s3._bucket_policies[physical_id] = _policy_text(new["PolicyDocument"])


def _delete_policy(physical_id: str, _properties: Mapping[str, Any]) -> None:
    s3._bucket_policies.pop(physical_id, None)


def _policy_text(document: object) -> str:
    return document if isinstance(document, str) else json.dumps(document)


def _listing() -> bytes:
    region = responses.get_region()
    rows = "".join(
        f"<Bucket><Name>{name}</Name><CreationDate>{bucket['created']}</CreationDate>"
        f"<BucketRegion>{region}</BucketRegion></Bucket>"
        for name, bucket in sorted(s3._buckets.items())
        if name.endswith("--x-s3") and bucket.get("region") == region
    )
    root = "ListAllMyDirectoryBucketsResult"
    return f"<{root} {_NAMESPACE}><Buckets>{rows}</Buckets></{root}>".encode()


def _session() -> bytes:
    ends = dt.datetime.now(tz=dt.UTC) + dt.timedelta(minutes=_SESSION_MINUTES)
    # The account number as key id keeps the session's requests in the same account.
    account = responses.get_account_id()
    return (
        f"<CreateSessionResult {_NAMESPACE}><Credentials><SessionToken>local</SessionToken>"
        f"<SecretAccessKey>local</SecretAccessKey><AccessKeyId>{account}</AccessKeyId>"
        f"<Expiration>{ends.strftime('%Y-%m-%dT%H:%M:%SZ')}</Expiration></Credentials></CreateSessionResult>"
    ).encode()
