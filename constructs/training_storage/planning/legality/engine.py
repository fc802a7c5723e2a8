"""Runs the rules: every finding at once, in the order of the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from training_storage.planning.catalog.limits import lustre_limits
from training_storage.planning.legality import (
    clients,
    declared,
    engines,
    express,
    links,
    lustre_capacity,
    lustre_features,
    lustre_options,
    regions,
    security_groups,
    shared_key,
)
from training_storage.planning.legality.finding import Unknown
from training_storage.planning.legality.lustre_spec import SCRATCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from training_storage.planning.legality.clients import EfaClients
    from training_storage.planning.legality.declared import Declaration
    from training_storage.planning.legality.engines import Engine
    from training_storage.planning.legality.express import AccessPoint, DirectoryBucket, ExpressPolicy
    from training_storage.planning.legality.finding import Finding, Rule
    from training_storage.planning.legality.links import Link, LinkedBucket
    from training_storage.planning.legality.lustre_spec import FileSystem
    from training_storage.planning.legality.shared_key import SharedKey

_Subject = TypeVar("_Subject")

_FILE_SYSTEM_RULES = (*lustre_capacity.RULES, *lustre_features.RULES, *lustre_options.RULES, *regions.RULES)


def check_file_system(system: FileSystem) -> tuple[Finding, ...]:
    """Return what CreateFileSystem would refuse of `system`."""
    return _run(_FILE_SYSTEM_RULES, system)


def check_link(link: Link) -> tuple[Finding, ...]:
    """Return what is wrong with one association by itself."""
    return _run(links.LINK_RULES, link)


def check_link_beside(link: Link, others: Sequence[Link]) -> tuple[Finding, ...]:
    """Return what is wrong with `link` beside the `others` of its file system: number, "/" alone, overlaps."""
    return _run(links.BESIDE_RULES, links.LinkBeside(link=link, others=tuple(others)))


def check_linked_bucket(bucket: LinkedBucket) -> tuple[Finding, ...]:
    """Return what of a linked bucket breaks its links."""
    return _run(links.BUCKET_RULES, bucket)


def check_directory_bucket(bucket: DirectoryBucket) -> tuple[Finding, ...]:
    """Return what S3 Express would refuse of `bucket`, or would never do."""
    return _run(express.BUCKET_RULES, bucket)


def check_express_policy(policy: ExpressPolicy) -> tuple[Finding, ...]:
    """Return what is wrong with a policy of a directory bucket."""
    return _run(express.POLICY_RULES, policy)


def check_access_point(point: AccessPoint) -> tuple[Finding, ...]:
    """Return what is wrong with an access point of a directory bucket."""
    return _run(express.ACCESS_POINT_RULES, point)


def check_shared_key(shared: SharedKey) -> tuple[Finding, ...]:
    """Return whether a key serves too many file systems."""
    return _run(shared_key.RULES, shared)


def check_engine(given: Engine) -> tuple[Finding, ...]:
    """Return whether a Region lacks an engine."""
    return _run(engines.RULES, given)


def check_efa_clients(given: EfaClients) -> tuple[Finding, ...]:
    """Return why clients would not reach a file system over EFA."""
    return _run(clients.RULES, given)


def check_declared_file_system(given: Declaration) -> tuple[Finding, ...]:
    """Return what a template must write of a file system, and what it cannot."""
    return _run(declared.FILE_SYSTEM_RULES, given)


def check_declared_link(given: Declaration) -> tuple[Finding, ...]:
    """Return what a template must write of a link."""
    return _run(declared.LINK_RULES, given)


def check_declared_directory_bucket(given: Declaration) -> tuple[Finding, ...]:
    """Return what a template must write of a directory bucket."""
    return _run(declared.DIRECTORY_BUCKET_RULES, given)


def lacks(system: FileSystem) -> tuple[str, ...]:
    """Return what a file system cannot do that PERSISTENT_2 on SSD can, in words."""
    missing = []
    if system.deployment_type != "PERSISTENT_2":
        missing += ["metadata configuration", "EFA and GPUDirect Storage"]
    if system.deployment_type in SCRATCH:
        missing += ["replication", "backups", "a KMS key of your own", "throughput that can be changed"]
    if system.storage_type == "HDD":
        missing += ["low latency", "throughput that can be changed"]
    if system.tiering:
        missing += ["links to S3", "a fixed capacity", "throughput that can be reduced"]
    elif not isinstance(system.version, Unknown) and system.version not in lustre_limits().link_versions:
        missing.append("links to S3")
    return tuple(dict.fromkeys(missing))


def rules() -> Mapping[str, Rule[Any]]:
    """Return every rule by id, in the order in which they run."""
    groups: tuple[Iterable[Rule[Any]], ...] = (
        _FILE_SYSTEM_RULES,
        links.LINK_RULES,
        links.BESIDE_RULES,
        links.BUCKET_RULES,
        express.BUCKET_RULES,
        express.POLICY_RULES,
        express.ACCESS_POINT_RULES,
        clients.RULES,
        shared_key.RULES,
        engines.RULES,
        declared.FILE_SYSTEM_RULES,
        declared.LINK_RULES,
        declared.DIRECTORY_BUCKET_RULES,
        (security_groups.efa_group,),
    )
    return {rule.id: rule for group in groups for rule in group}


def _run(group: Iterable[Rule[_Subject]], subject: _Subject) -> tuple[Finding, ...]:
    return tuple(finding for rule in group for finding in rule.findings(subject))
