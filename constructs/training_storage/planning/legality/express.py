"""Rules: S3 Express One Zone directory buckets and their access points."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_storage.planning import catalog
from training_storage.planning.catalog.limits import express_naming
from training_storage.planning.catalog.regions import ZONE_ID_ALLOWED, ZONE_ID_REMEDY
from training_storage.planning.legality.finding import Number, Problem, Text, Unknown, Words, is_whole, listed, rule
from training_storage.planning.legality.intrinsics import without_unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from training_storage.planning.catalog import Region

_NAMING = "S3 guide, directory-bucket-naming-rules"
_DIFFERENCES = "S3 guide, s3-express-differences"
_ZONES = "S3 guide, directory-bucket-az-networking"
_ZONE_ID = re.compile(r"[a-z]{2,5}\d+(-[a-z]{3}\d+)?-az\d+")
_LOCAL_ZONE_ID = re.compile(r"[a-z]{2,5}\d+-[a-z]{3}\d+-az\d+")
_BASE = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_FULL = re.compile(r"(?P<base>.*)--(?P<zone>(\$\{[^}]*\}|[a-z0-9-])+?)--x-s3", re.DOTALL)
_BASE_MINIMUM = 1


@dataclass(frozen=True, kw_only=True)
class DirectoryBucket:
    """A directory bucket as it is asked for. None is left out; UNKNOWN is known only at deployment.

    Parameters
    ----------
    name
        Whole name, or the base name if `base_only` (the suffix is then appended).
    zone_id
        ``LocationName``.
    kms_key
        ``KMSMasterKeyID``.
    expires
        Whether a lifecycle rule is enabled, and `lifecycle_granted` whether the bucket policy lets lifecycle in; None
        where the policy is not known.
    extra_properties, extra_lifecycle
        Properties that general purpose buckets have and directory buckets do not.
    """

    name: Text = None
    zone_id: Text = None
    base_only: bool = False
    redundancy: Text = None
    algorithm: Text = None
    kms_key: Text = None
    bucket_key: object = None
    expires: bool = False
    expiration_days: Number = None
    lifecycle_granted: bool | None = None
    extra_properties: tuple[str, ...] = ()
    extra_lifecycle: tuple[str, ...] = ()
    region: Region | None = None

    @property
    def field(self) -> str:
        """What the name is called."""
        return "base_name" if self.base_only else "bucket_name"

    def base(self) -> str | None:
        """Return the part of the name before the suffix, or None where there is no suffix."""
        if not isinstance(self.name, str):
            return None
        if self.base_only:
            return self.name
        match = _FULL.fullmatch(self.name)
        return None if match is None else match["base"]

    def named_zone(self) -> str | None:
        """Return the zone within the name."""
        match = _FULL.fullmatch(self.name) if isinstance(self.name, str) and not self.base_only else None
        return None if match is None else match["zone"]

    def unknown_fields(self) -> tuple[str, ...]:
        """Return what cannot be checked."""
        names = ("name", "zone_id", "redundancy", "algorithm", "kms_key", "expiration_days")
        return tuple(name for name in names if isinstance(getattr(self, name), Unknown))


@dataclass(frozen=True, kw_only=True)
class ExpressPolicy:
    """A policy of a directory bucket: its actions and resources."""

    actions: tuple[str, ...]
    resources: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class AccessPoint:
    """An access point of a directory bucket; `zone_id` is the bucket's zone, where it is known."""

    name: Text = None
    zone_id: Text = None


@rule("express-name-suffix", source=_NAMING)
def name_suffix(bucket: DirectoryBucket) -> Iterator[Problem]:
    """Require that the whole name ends with --zone-id--x-s3."""
    if not isinstance(bucket.name, str) or bucket.base_only or bucket.base() is not None:
        return
    zone = bucket.zone_id if isinstance(bucket.zone_id, str) and _ZONE_ID.fullmatch(bucket.zone_id) else "use1-az4"
    yield Problem(
        what="bucket_name",
        allowed="have the form base--zoneid--x-s3",
        got=bucket.name,
        remedy=f"such as 'data--{zone}--x-s3', or leave it out",
        location="BucketName",
    )


@rule("express-name-zone", source=_NAMING)
def name_zone(bucket: DirectoryBucket) -> Iterator[Problem]:
    """Require that the zone in the name is the bucket's."""
    named = bucket.named_zone()
    if named is None or "$" in named or not isinstance(bucket.zone_id, str) or named == bucket.zone_id:
        return
    yield Problem(
        what="bucket_name",
        allowed=f"name its own zone {bucket.zone_id[:20]}",
        got=bucket.name,
        remedy="the name and the location must agree",
        location="BucketName",
    )


@rule("express-name", source=_NAMING)
def name_form(bucket: DirectoryBucket) -> Iterator[Problem]:
    """Require that the name has lowercase letters, digits and hyphens, and no reserved prefix or second suffix."""
    base, naming = bucket.base(), express_naming()
    if base is None:
        return
    # A part that is known only at deployment may be anything legal; the rest is looked at.
    base = without_unknown(base)
    reserved = base.startswith(naming.reserved_prefixes) or base.endswith("-x-s3")
    if _BASE.fullmatch(base) and not reserved:
        return
    yield Problem(
        what=bucket.field,
        allowed=(
            f"not begin with {listed(naming.reserved_prefixes)} nor end twice in -x-s3"
            if reserved
            else "have lowercase letters, digits and inner hyphens only"
        ),
        got=bucket.name,
        remedy="the zone id and '--x-s3' are appended" if bucket.base_only else "dots and capitals are refused",
        location="BucketName",
    )


@rule("express-name-length", source=_NAMING)
def name_length(bucket: DirectoryBucket) -> Iterator[Problem]:
    """Require that the whole name has at most 63 characters."""
    base, naming = bucket.base(), express_naming()
    zone = bucket.zone_id if bucket.base_only else bucket.named_zone()
    if base is None or "${" in base or not isinstance(zone, str) or "$" in zone or base == "":
        return
    room = naming.characters_maximum - len(f"--{zone}{naming.suffix}")
    if len(base) > room:
        yield Problem(
            what=bucket.field,
            allowed=f"have at most {room} characters before '--{zone[:20]}{naming.suffix}'",
            got=Words(f"{bucket.name!r} ({len(base)})"),
            remedy=f"shorten it by {len(base) - room}",
            location="BucketName",
        )


@rule("express-zone", source=_NAMING)
def zone_form(bucket: DirectoryBucket) -> Iterator[Problem]:
    """Require that the location is a zone id, not a zone name."""
    zone = bucket.zone_id
    if isinstance(zone, str) and "${" not in zone and not _ZONE_ID.fullmatch(zone):
        yield Problem(
            what="zone_id",
            allowed=f"be {ZONE_ID_ALLOWED}",
            got=zone,
            remedy=ZONE_ID_REMEDY,
            location="LocationName",
        )


@rule("express-zone-region", source=_ZONES)
def zone_region(bucket: DirectoryBucket) -> Iterator[Problem]:
    """Require that the zone is one of those that the Region offers S3 Express in."""
    zone, region = bucket.zone_id, bucket.region
    if region is None or not isinstance(zone, str) or not _ZONE_ID.fullmatch(zone):
        return
    # Local Zones offer buckets of their own redundancy and are not in the list.
    if zone in region.express_zone_ids or (_LOCAL_ZONE_ID.fullmatch(zone) and region.is_well_formed_zone_id(zone)):
        return
    if not region.express_zone_ids:
        offering = [other.name for other in catalog.regions().values() if other.express_zone_ids]
        allowed, remedy = "be left out: the Region has no S3 Express", f"use {listed(offering[:3])} … or S3"
    else:
        allowed, remedy = f"be one of {listed(region.express_zone_ids)}", "or keep the data in S3"
    yield Problem(what=f"zone_id in {region.name}", allowed=allowed, got=zone, remedy=remedy, location="LocationName")


@rule("express-redundancy", source="CloudFormation, AWS::S3Express::DirectoryBucket DataRedundancy")
def redundancy(bucket: DirectoryBucket) -> Iterator[Problem]:
    """Require that the redundancy is that of the kind of zone."""
    got, allowed, zone = bucket.redundancy, express_naming().redundancies, bucket.zone_id
    if got is None or isinstance(got, Unknown):
        return
    if isinstance(zone, str) and _ZONE_ID.fullmatch(zone):
        allowed = (allowed[1],) if _LOCAL_ZONE_ID.fullmatch(zone) else (allowed[0],)
    if got not in allowed:
        yield Problem(
            what="data_redundancy",
            allowed=f"be {' or '.join(allowed)}{f' in zone {zone}' if isinstance(zone, str) else ''}",
            got=got,
            remedy=f"use {allowed[0]}",
            location="DataRedundancy",
        )


@rule("express-encryption", source="S3 guide, s3-express-serv-side-encryption")
def encryption(bucket: DirectoryBucket) -> Iterator[Problem]:
    """Require that encryption is SSE-S3 or SSE-KMS with one customer key, its bucket key on; DSSE is not offered."""
    algorithm, allowed = bucket.algorithm, express_naming().algorithms
    location = "BucketEncryption.ServerSideEncryptionConfiguration"
    if isinstance(algorithm, str) and algorithm not in allowed:
        yield Problem(
            what="sse_algorithm",
            allowed=f"be one of {listed(allowed)}",
            got=algorithm,
            remedy="directory buckets have neither DSSE nor SSE-C",
            location=location,
        )
    if algorithm == "aws:kms" and bucket.kms_key is None:
        yield Problem(
            what="encryption_key",
            allowed="be a customer key with aws:kms",
            got=None,
            remedy="directory buckets cannot use aws/s3; give a key or use AES256",
            location=location,
        )
    if algorithm == "aws:kms" and bucket.bucket_key is False:
        yield Problem(
            what="bucket_key_enabled",
            allowed="be true with aws:kms",
            got=False,
            remedy="the bucket key of directory buckets is always on",
            location=location,
        )


@rule("express-kms-key", source="S3 guide, s3-express-specifying-kms-encryption")
def kms_key(bucket: DirectoryBucket) -> Iterator[Problem]:
    """Require that the key is named by ARN or id, not by alias."""
    key = bucket.kms_key
    if isinstance(key, str) and (key.startswith("alias/") or ":alias/" in key):
        yield Problem(
            what="encryption_key",
            allowed="be the ARN or the id of a key, not an alias",
            got=key,
            remedy="'aws kms describe-key' shows the ARN",
            location="BucketEncryption.ServerSideEncryptionConfiguration",
        )


@rule("express-lifecycle-grant", source="S3 guide, directory-buckets-lifecycle-troubleshooting")
def lifecycle_grant(bucket: DirectoryBucket) -> Iterator[Problem]:
    """Require that a lifecycle needs the grant without which it never runs."""
    if bucket.expires and bucket.lifecycle_granted is False:
        yield Problem(
            what="the bucket policy",
            allowed="let lifecycle.s3.amazonaws.com open sessions for lifecycle rules to run",
            got=Words("no grant"),
            remedy="allow it s3express:CreateSession with SessionMode ReadWrite",
            location="LifecycleConfiguration",
        )


@rule("express-lifecycle", source="CloudFormation, DirectoryBucket LifecycleConfiguration; S3 guide, lifecycle")
def lifecycle(bucket: DirectoryBucket) -> Iterator[Problem]:
    """Require that lifecycle rules expire by whole days and abort uploads; nothing else."""
    if bucket.extra_lifecycle:
        yield Problem(
            what="lifecycle rules",
            allowed="use expiration in days, abort of uploads, prefix and size only",
            got=Words(listed(bucket.extra_lifecycle)),
            remedy="S3 Express has no transitions, versions or tag filters",
            location="LifecycleConfiguration.Rules",
        )
    days = bucket.expiration_days
    if days is not None and not isinstance(days, Unknown) and (not is_whole(days) or days < 1):
        yield Problem(
            what="expiration_days",
            allowed="be a whole number, at least 1",
            got=days,
            remedy="leave it out to keep objects",
            location="LifecycleConfiguration.Rules",
        )


@rule("express-features", source=_DIFFERENCES)
def features(bucket: DirectoryBucket) -> Iterator[Problem]:
    """Require that directory buckets do without versioning, locks, replication, notifications, logs and more."""
    if bucket.extra_properties:
        yield Problem(
            what="a directory bucket",
            allowed="do without the features of general purpose buckets",
            got=Words(listed(bucket.extra_properties)),
            remedy="keep what needs them in S3",
            location=bucket.extra_properties[0],
        )


@rule("express-policy", source="S3 guide, s3-express-security-iam")
def policy(given: ExpressPolicy) -> Iterator[Problem]:
    """Require that policies work on the bucket, by s3express actions: no s3 actions, no object ARNs."""
    wrong = [action for action in given.actions if action.lower().startswith("s3:")]
    if wrong:
        yield Problem(
            what="actions",
            allowed="begin with s3express:",
            got=wrong[0],
            remedy="use s3express:CreateSession for data",
            location="PolicyDocument",
        )
    objects = [resource for resource in given.resources if re.search(r"--x-s3/|\.Arn\}/|:s3:::", resource)]
    if objects:
        yield Problem(
            what="resources",
            allowed="be the ARN of the bucket, not of objects",
            got=objects[0],
            remedy="arn:aws:s3express:REGION:ACCOUNT:bucket/NAME",
            location="PolicyDocument",
        )


@rule("express-access-point", source="CloudFormation, AWS::S3Express::AccessPoint Name")
def access_point(point: AccessPoint) -> Iterator[Problem]:
    """Require that names of access points have 3 to 50 characters and end with --zone-id--xa-s3."""
    if not isinstance(point.name, str) or "${" in point.name:
        return
    naming = express_naming()
    least, most = naming.access_point_characters_minimum, naming.access_point_characters_maximum
    legal = re.fullmatch(rf"[a-z0-9][a-z0-9-]*--[a-z0-9-]+{naming.access_point_suffix}", point.name)
    if legal is None or not least <= len(point.name) <= most:
        yield Problem(
            what="access_point_name",
            allowed=f"have {least} to {most} characters and the form base--zoneid{naming.access_point_suffix}",
            got=point.name,
            remedy=f"such as 'train--use1-az4{naming.access_point_suffix}'",
            location="Name",
        )


@rule("express-access-point-zone", source="CloudFormation, AWS::S3Express::AccessPoint Name")
def access_point_zone(point: AccessPoint) -> Iterator[Problem]:
    """Require that an access point names the zone of its bucket."""
    suffix = express_naming().access_point_suffix
    if not isinstance(point.name, str) or not isinstance(point.zone_id, str) or "${" in point.zone_id:
        return
    named = re.search(rf"--([a-z0-9-]+?){suffix}$", point.name)
    if named is not None and not point.name.endswith(f"--{point.zone_id}{suffix}"):
        yield Problem(
            what="access_point_name",
            allowed=f"end with --{point.zone_id[:20]}{suffix}, the zone of its bucket",
            got=point.name,
            remedy="an access point is in the zone of its bucket",
            location="Name",
        )


BUCKET_RULES = (
    name_suffix,
    name_zone,
    name_form,
    name_length,
    zone_form,
    zone_region,
    redundancy,
    encryption,
    kms_key,
    lifecycle_grant,
    lifecycle,
    features,
)
POLICY_RULES = (policy,)
ACCESS_POINT_RULES = (access_point, access_point_zone)
