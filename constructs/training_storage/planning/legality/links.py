"""Rules: data repository associations, and the buckets behind them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_storage.planning.catalog.limits import express_naming, lustre_limits
from training_storage.planning.catalog.lustre import association_limits
from training_storage.planning.legality.finding import UNKNOWN, Number, Problem, Unknown, Words, is_whole, listed, rule
from training_storage.planning.legality.intrinsics import without_unknown
from training_storage.planning.legality.lustre_spec import TIERING, FileSystem

if TYPE_CHECKING:
    from collections.abc import Iterator

_API = "FSx API, CreateDataRepositoryAssociationRequest"
_GUIDE = "FSx guide, create-dra-linked-data-repo"
_PATH = re.compile(r"/|(/[^/\0\r\n\x85\u2028\u2029]+)+/?")
_PATH_MAXIMUM = 4096
_REPOSITORY = re.compile(r"s3://(?P<bucket>[^/\s]+)(?P<prefix>(/.*)?)", re.DOTALL)
_GLACIER = ("GLACIER", "DEEP_ARCHIVE")
#: Access tiers of S3 Intelligent-Tiering whose objects must be restored before they can be read.
_ARCHIVE_TIERS = ("ARCHIVE_ACCESS", "DEEP_ARCHIVE_ACCESS")
_BUCKET_NAME = re.compile(r"[a-z0-9.-]+")


@dataclass(frozen=True, kw_only=True)
class Link:
    """An association as it is asked for. None is left out; UNKNOWN is known only at deployment.

    Parameters
    ----------
    file_system_path, data_repository_path
        Directory and ``s3://bucket/prefix``; parts known only at deployment stand in it as ``${…}``.
    chunk_size_mib
        ``ImportedFileChunkSize``.
    import_events, export_events
        Events of the policies.
    file_system
        The file system, where it is known.
    file_system_region, bucket_region
        Regions, where they are known.
    """

    file_system_path: str | Unknown | None = None
    data_repository_path: str | Unknown | None = None
    chunk_size_mib: Number = None
    import_events: tuple[object, ...] | Unknown = ()
    export_events: tuple[object, ...] | Unknown = ()
    file_system: FileSystem | None = None
    file_system_region: str | None = None
    bucket_region: str | None = None

    def unknown_fields(self) -> tuple[str, ...]:
        """Return what cannot be checked."""
        names = (
            "file_system_path",
            "data_repository_path",
            "chunk_size_mib",
            "import_events",
            "export_events",
        )
        return tuple(name for name in names if getattr(self, name) is UNKNOWN)


@dataclass(frozen=True, kw_only=True)
class LinkBeside:
    """A link and the ones that its file system has already."""

    link: Link
    others: tuple[Link, ...]


@dataclass(frozen=True, kw_only=True)
class LinkedBucket:
    """What is known of a bucket behind a link.

    Parameters
    ----------
    name
        Its name, or how the template calls it.
    prefixes
        The linked prefixes, each ending with a slash; "" for the whole bucket.
    transitions
        Storage class or access tier and prefix of each enabled transition, by lifecycle or S3 Intelligent-Tiering.
    source_vpc_conditions
        Condition keys of its bucket policy that look at the caller's VPC.
    notifications
        How its notifications are set, if something sets them; empty otherwise.
    """

    name: str
    prefixes: tuple[str, ...]
    transitions: tuple[tuple[str, str], ...] = ()
    source_vpc_conditions: tuple[str, ...] = ()
    notifications: str = ""


@rule("link-path", source=f"{_API}.FileSystemPath")
def path_form(link: Link) -> Iterator[Problem]:
    """Require that the path is an absolute directory."""
    path = link.file_system_path
    if path is None or isinstance(path, Unknown) or path.startswith("${"):
        return
    # "." and ".." would name another directory than the one that overlaps are judged by.
    steps = {".", ".."} & set(path.split("/"))
    if steps or not _PATH.fullmatch(without_unknown(path)) or len(path) > _PATH_MAXIMUM:
        yield Problem(
            what="file_system_path",
            allowed=f"be an absolute directory such as '/datasets', at most {_PATH_MAXIMUM} characters",
            got=path,
            remedy="begin with one slash, none doubled, no '.' or '..'",
            location="FileSystemPath",
        )


@rule("link-prefix", source=f"{_API}.DataRepositoryPath; FSx guide, fsx-data-repositories")
def prefix_form(link: Link) -> Iterator[Problem]:
    """Require that the repository is s3://bucket/prefix of a general purpose bucket."""
    path = link.data_repository_path
    if path is None or isinstance(path, Unknown) or path.startswith("${"):
        return
    match = _REPOSITORY.fullmatch(without_unknown(path))
    if match is None or "//" in match["prefix"]:
        allowed, remedy = "have the form s3://bucket/prefix/", "write s3:// first and no slash twice"
    elif not _BUCKET_NAME.fullmatch(match["bucket"]):
        allowed, remedy = "name a bucket", "bucket names have lowercase letters, digits, dots and hyphens"
    elif match["bucket"].endswith(express_naming().suffix):
        allowed, remedy = "name a general purpose bucket", "a directory bucket cannot be linked"
    else:
        return
    yield Problem(what="data_repository_path", allowed=allowed, got=path, remedy=remedy, location="DataRepositoryPath")


@rule("link-chunk-size", source=f"{_API}.ImportedFileChunkSize")
def chunk_size(link: Link) -> Iterator[Problem]:
    """Require that the chunk size is 1 to 512,000 MiB."""
    got, limits = link.chunk_size_mib, association_limits()
    if got is None or isinstance(got, Unknown):
        return
    if not is_whole(got) or not 1 <= got <= limits.chunk_size_mib_maximum:
        yield Problem(
            what="imported_file_chunk_size_mib",
            allowed=f"be a whole number from 1 to {limits.chunk_size_mib_maximum}",
            got=got,
            remedy=f"{limits.chunk_size_mib_default} is the default",
            location="ImportedFileChunkSize",
        )


@rule("link-events", source="FSx API, AutoImportPolicy and AutoExportPolicy")
def events(link: Link) -> Iterator[Problem]:
    """Require that events are NEW, CHANGED and DELETED, each once."""
    allowed = association_limits().events
    policies = (
        ("import_events", link.import_events, "AutoImportPolicy"),
        ("export_events", link.export_events, "AutoExportPolicy"),
    )
    for what, given, policy in policies:
        if isinstance(given, Unknown):
            continue
        known = [event for event in given if event is not UNKNOWN]
        wrong = [event for event in known if event not in allowed]
        if wrong or len(set(map(str, known))) != len(known):
            yield Problem(
                what=what,
                allowed=f"be a list of {listed(allowed)}, each at most once",
                got=wrong[0] if wrong else Words(listed(known)),
                remedy="an empty list turns the policy off",
                location=f"S3.{policy}.Events",
            )


@rule("link-file-system", source='FSx error: "This file system does not support data repository associations"')
def file_system(link: Link) -> Iterator[Problem]:
    """Require that the file system can be linked: not SCRATCH_1, not Lustre 2.10, not Intelligent-Tiering."""
    system = link.file_system
    if system is None:
        return
    if system.tiering:
        got, remedy = TIERING, "use SSD or HDD"
    elif system.deployment_type == "SCRATCH_1":
        got, remedy = "SCRATCH_1", "use SCRATCH_2 or a persistent type"
    elif not isinstance(system.version, Unknown) and system.version not in lustre_limits().link_versions:
        default = " by default" if system.file_system_type_version is None else ""
        got, remedy = f"Lustre {system.version}{default}", "set file_system_type_version to 2.15 (2.12 in China)"
    else:
        return
    yield Problem(
        what="file_system",
        allowed="be SCRATCH_2 or persistent on SSD or HDD with Lustre 2.12 or 2.15 to be linked",
        got=Words(got),
        remedy=remedy,
        location="FileSystemId",
    )


@rule("link-import-region", source=f"{_GUIDE} (dra-regional-support)")
def import_region(link: Link) -> Iterator[Problem]:
    """Require that automatic import needs bucket and file system in the same Region."""
    ours, theirs = link.file_system_region, link.bucket_region
    if ours is None or theirs is None or ours == theirs or isinstance(link.import_events, Unknown):
        return
    if link.import_events:
        yield Problem(
            what="import_events",
            allowed=f"be empty unless the bucket is in the file system's Region {ours}",
            got=Words(f"a bucket in {theirs}"),
            remedy="import with a task, or copy the bucket; export may cross Regions",
            location="S3.AutoImportPolicy",
        )


@rule("link-count", source=_GUIDE)
def count(beside: LinkBeside) -> Iterator[Problem]:
    """Require that a file system has at most 8 associations."""
    most = association_limits().per_file_system_maximum
    if len(beside.others) >= most:
        yield Problem(
            what="a file system",
            allowed=f"have at most {most} data repository associations",
            got=Words(f"one more ({beside.link.file_system_path or 'a link'})"),
            remedy="link a common parent prefix instead",
            location="FileSystemId",
        )


@rule("link-root", source=_GUIDE)
def root(beside: LinkBeside) -> Iterator[Problem]:
    """Require that the path "/" is linked alone or not at all."""
    for other in beside.others:
        # "/" is alone whatever the other path is, one that is known only at deployment included.
        ours, theirs = _directory(beside.link.file_system_path), _directory(other.file_system_path)
        if "/" in (ours, theirs):
            paths = [_called(link.file_system_path) for link in (beside.link, other)]
            yield Problem(
                what="file_system_path '/'",
                allowed="be the only data repository association of a file system",
                got=Words(" beside ".join(paths)),
                remedy="link directories such as '/datasets' instead",
                location="FileSystemPath",
            )
            return


@rule("link-path-overlap", source=_GUIDE)
def path_overlap(beside: LinkBeside) -> Iterator[Problem]:
    """Require that linked directories lie neither within nor around each other."""
    for other in beside.others:
        ours, theirs = _directory(beside.link.file_system_path), _directory(other.file_system_path)
        if ours is not None and theirs is not None and "/" not in (ours, theirs) and _nested(ours, theirs):
            yield Problem(
                what="file_system_path",
                allowed="not lie within or around another linked path",
                got=Words(f"{beside.link.file_system_path} beside {other.file_system_path}"),
                remedy="choose a directory of its own",
                location="FileSystemPath",
            )
            return


@rule("link-prefix-overlap", source=_GUIDE)
def prefix_overlap(beside: LinkBeside) -> Iterator[Problem]:
    """Require that linked prefixes of a bucket lie neither within nor around each other."""
    for other in beside.others:
        ours, theirs = _directory(beside.link.data_repository_path), _directory(other.data_repository_path)
        if ours is not None and theirs is not None and _nested(ours, theirs):
            yield Problem(
                what="data_repository_path",
                allowed="not lie within or around another linked prefix",
                got=Words(f"{beside.link.data_repository_path} beside {other.data_repository_path}"),
                remedy="choose a prefix of its own",
                location="DataRepositoryPath",
            )
            return


@rule("link-glacier", source="FSx guide, data-repo-event-logs (S3ObjectInUnsupportedTier)")
def glacier(bucket: LinkedBucket) -> Iterator[Problem]:
    """Require that no lifecycle moves linked objects to classes whose reads fail: Glacier Flexible, Deep Archive."""
    for storage_class, prefix in bucket.transitions:
        touched = [linked for linked in bucket.prefixes if linked.startswith(prefix) or prefix.startswith(linked)]
        if storage_class in (*_GLACIER, *_ARCHIVE_TIERS) and touched:
            tiers = _ARCHIVE_TIERS if storage_class in _ARCHIVE_TIERS else _GLACIER
            yield Problem(
                what="storage_class",
                allowed=f"not be {' or '.join(tiers)} under a linked prefix",
                got=Words(f"{storage_class} of {prefix or 'the whole bucket'}"),
                remedy="use GLACIER_IR, INTELLIGENT_TIERING or STANDARD_IA",
                location="LifecycleConfiguration.Rules",
            )


@rule("link-source-vpc", source="FSx guide, troubleshooting (source-VPC conditions)")
def source_vpc(bucket: LinkedBucket) -> Iterator[Problem]:
    """Require that the policy of a linked bucket does not look at the caller's VPC: FSx does not come from yours."""
    if bucket.source_vpc_conditions:
        yield Problem(
            what="the bucket policy",
            allowed="not depend on the caller's VPC for a linked bucket",
            got=Words(listed(bucket.source_vpc_conditions)),
            remedy="FSx does not come from your VPC: let its service-linked role through",
            location="PolicyDocument",
        )


@rule("link-notifications", source="FSx guide, autoimport-data-repo-dra (notification configuration FSx)")
def notifications(bucket: LinkedBucket) -> Iterator[Problem]:
    """Require that nothing overwrites the notification configuration named FSx of a linked bucket."""
    if bucket.notifications:
        yield Problem(
            what="notifications",
            allowed="be left to FSx on a bucket linked with automatic import",
            got=Words(bucket.notifications),
            remedy="it overwrites FSx's own entry; add them to an imported bucket, which keeps foreign entries",
            location="NotificationConfiguration",
        )


def _called(path: str | Unknown | None) -> str:
    return path if isinstance(path, str) else "another link"


def _directory(path: str | Unknown | None) -> str | None:
    """Return a path with its trailing slash, or None where it is not known or no path at all."""
    if not isinstance(path, str) or not path:
        return None
    return path.rstrip("/") + "/"


def _nested(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


LINK_RULES = (path_form, prefix_form, chunk_size, events, file_system, import_region)
BESIDE_RULES = (count, root, path_overlap, prefix_overlap)
BUCKET_RULES = (glacier, source_vpc, notifications)
