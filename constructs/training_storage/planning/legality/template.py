"""The same rules for any CloudFormation template: who refers to whom is read, functions are left alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from training_storage.planning import catalog
from training_storage.planning.legality import buckets, engine, log_groups, security_groups
from training_storage.planning.legality.declared import (
    DIRECTORY_BUCKET_REQUIRED,
    FILE_SYSTEM_REQUIRED,
    LINK_REQUIRED,
    Declaration,
)
from training_storage.planning.legality.engines import HYPERPOD, PCS, Engine
from training_storage.planning.legality.express import AccessPoint, DirectoryBucket
from training_storage.planning.legality.finding import Finding, Text, Unknown, located
from training_storage.planning.legality.intrinsics import is_absent, is_intrinsic, referenced, symbol
from training_storage.planning.legality.lustre_spec import Logging
from training_storage.planning.legality.properties import read_directory_bucket, read_file_system, read_link, text
from training_storage.planning.legality.shared_key import SharedKey

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from training_storage.planning.catalog import Region
    from training_storage.planning.legality.links import Link
    from training_storage.planning.legality.lustre_spec import FileSystem

FILE_SYSTEM = "AWS::FSx::FileSystem"
LINK = "AWS::FSx::DataRepositoryAssociation"
DIRECTORY_BUCKET = "AWS::S3Express::DirectoryBucket"
ACCESS_POINT = "AWS::S3Express::AccessPoint"
EXPRESS_POLICY = "AWS::S3Express::BucketPolicy"
KEY_ALIAS = "AWS::KMS::Alias"
NESTED_STACK = "AWS::CloudFormation::Stack"


@dataclass(frozen=True, kw_only=True)
class TemplateFinding:
    """A finding and the resource that it is about."""

    logical_id: str
    finding: Finding


@dataclass(frozen=True, kw_only=True)
class TemplateReport:
    """What is illegal in a template, and what could not be checked (one line each)."""

    findings: tuple[TemplateFinding, ...]
    skipped: tuple[str, ...]


@dataclass(kw_only=True)
class Stack:
    """The resources of one template, by type, as far as they are plain."""

    resources: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)

    def of_type(self, kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield logical id and properties of the resources of a type."""
        for logical_id, resource in self.resources.items():
            if resource.get("Type") == kind:
                yield logical_id, self.properties(logical_id)

    def properties(self, logical_id: str) -> Mapping[str, Any]:
        """Return the properties of a resource; empty where they are a function."""
        properties = self.resources[logical_id].get("Properties")
        return properties if isinstance(properties, Mapping) and not is_intrinsic(properties) else {}

    def condition(self, logical_id: str) -> str | None:
        """Return the condition under which a resource is there; None if it always is."""
        condition = self.resources[logical_id].get("Condition")
        return None if condition is None else str(condition)


def check_template(
    template: Mapping[str, Any], *, region: str | None = None, nested_elsewhere: Collection[str] = ()
) -> TemplateReport:
    """Return everything in `template` that the services would refuse.

    Parameters
    ----------
    template
        A CloudFormation template, parsed.
    region
        Where it will be deployed; rules about Regions are left out without it.
    nested_elsewhere
        Logical ids of nested stacks whose templates are checked by themselves.
    """
    stack = _read(template)
    known = catalog.regions().get(region) if region else None
    if region and known is None:
        stack.skipped.append(f"Region {region} is not in the catalog: its limits are not checked")
    found: list[TemplateFinding] = []
    linked = _links_by_file_system(stack)
    systems = dict(_file_systems(stack, region=known, linked=linked, found=found))
    _check_links(stack, linked=linked, systems=systems, region=known, found=found)
    _check_directory_buckets(stack, region=known, found=found)
    for logical_id, resource in stack.resources.items():
        if known is not None and resource["Type"] in (PCS, HYPERPOD):
            _add(found, logical_id, engine.check_engine(Engine(resource_type=resource["Type"], region=known)))
    for logical_id, properties in stack.of_type(ACCESS_POINT):
        point = AccessPoint(name=text(properties, "Name"), zone_id=_zone_of(stack, properties.get("Bucket")))
        _add(found, logical_id, engine.check_access_point(point))
    stack.skipped += [
        f"{logical_id}: nested stack, whose template is not checked here (check its file too)"
        for logical_id, _ in stack.of_type(NESTED_STACK)
        if logical_id not in nested_elsewhere
    ]
    if not region and any(
        resource.get("Type") in (FILE_SYSTEM, DIRECTORY_BUCKET) for resource in stack.resources.values()
    ):
        stack.skipped.append("Region: not known, so its limits are not checked (give --region)")
    return TemplateReport(findings=tuple(found), skipped=tuple(stack.skipped))


def _read(template: Mapping[str, Any]) -> Stack:
    stack = Stack()
    resources = template.get("Resources")
    if not isinstance(resources, Mapping):
        stack.skipped.append("Resources: none that can be read")
        return stack
    for name in ("Transform", "Fn::Transform"):
        if name in template:
            stack.skipped.append(f"{name}: what macros add or change is not seen")
    for logical_id, resource in resources.items():
        if not isinstance(resource, Mapping) or not isinstance(resource.get("Type"), str):
            stack.skipped.append(f"{logical_id}: not a plain resource")
            continue
        stack.resources[str(logical_id)] = resource
        if resource["Type"] in (FILE_SYSTEM, LINK, DIRECTORY_BUCKET) and is_intrinsic(resource.get("Properties")):
            stack.skipped.append(f"{logical_id}.Properties: known only at deployment")
    return stack


def _links_by_file_system(stack: Stack) -> dict[str, list[str]]:
    """Return the links of each file system by how the template calls it: ``${Id}`` or a literal id."""
    by_system: dict[str, list[str]] = {}
    for logical_id, properties in stack.of_type(LINK):
        by_system.setdefault(symbol(properties.get("FileSystemId")), []).append(logical_id)
    return by_system


def _file_systems(
    stack: Stack, *, region: Region | None, linked: dict[str, list[str]], found: list[TemplateFinding]
) -> Iterator[tuple[str, FileSystem]]:
    keys: dict[str, list[str]] = {}
    for logical_id, properties in stack.of_type(FILE_SYSTEM):
        kind = text(properties, "FileSystemType")
        required = FILE_SYSTEM_REQUIRED if kind == "LUSTRE" else FILE_SYSTEM_REQUIRED[:1]
        declaration = _declaration(stack, logical_id, required)
        _add(found, logical_id, engine.check_declared_file_system(declaration))
        if kind != "LUSTRE":
            if isinstance(kind, Unknown):
                stack.skipped.append(f"{logical_id}.FileSystemType: known only at deployment")
            continue
        own = [link for name in _names_of(logical_id) for link in linked.get(name, [])]
        perhaps = [link for link in own if stack.condition(link) is not None]
        if perhaps:
            stack.skipped.append(f"{logical_id}: taken as linked, though conditional: {', '.join(perhaps)}")
        system = read_file_system(properties, region=region, linked=bool(own))
        if isinstance(system.logging, Logging):
            logging = log_groups.resolved(stack, properties, system.logging)
            system = replace(system, logging=logging)
        _add(found, logical_id, engine.check_file_system(system))
        _add(found, logical_id, security_groups.check_groups(stack, logical_id, system))
        stack.skipped += [f"{logical_id}.{name}: known only at deployment" for name in system.unknown_fields()]
        if "KmsKeyId" in properties:
            keys.setdefault(symbol(properties["KmsKeyId"]), []).append(logical_id)
        for name in _names_of(logical_id):
            yield name, system
    for key, users in keys.items():
        _add(found, users[-1], engine.check_shared_key(SharedKey(key=key, file_systems=len(users))))


def _names_of(logical_id: str) -> tuple[str, ...]:
    """Return how a template refers to a file system: Ref and GetAtt give the same id."""
    return (f"${{{logical_id}}}", f"${{{logical_id}.Id}}")


def _check_links(
    stack: Stack,
    *,
    linked: dict[str, list[str]],
    systems: dict[str, FileSystem],
    region: Region | None,
    found: list[TemplateFinding],
) -> None:
    for group in _groups(linked):
        # Those that are always there come first, so that each conditional one is compared with them.
        ordered = sorted(group, key=lambda logical_id: stack.condition(logical_id) is not None)
        before: list[tuple[str | None, Link]] = []
        for logical_id in ordered:
            properties = stack.properties(logical_id)
            _add(found, logical_id, engine.check_declared_link(_declaration(stack, logical_id, LINK_REQUIRED)))
            system = systems.get(symbol(properties.get("FileSystemId")))
            link = read_link(properties, file_system=system, file_system_region=region.name if region else None)
            _add(found, logical_id, engine.check_link(link))
            stack.skipped += [f"{logical_id}.{name}: known only at deployment" for name in link.unknown_fields()]
            condition = stack.condition(logical_id)
            together = [other for own, other in before if own is None or own == condition]
            _add(found, logical_id, engine.check_link_beside(link, together))
            before.append((condition, link))
        conditions = list(dict.fromkeys(condition for condition, _ in before if condition is not None))
        if len(conditions) > 1:
            stack.skipped.append(
                f"{', '.join(ordered)}: conditional ({', '.join(conditions)}), so links of one condition are not"
                " compared with those of another"
            )
    for logical_id, finding in buckets.check_linked_buckets(stack):
        found.append(TemplateFinding(logical_id=logical_id, finding=finding))


def _groups(linked: dict[str, list[str]]) -> Iterator[list[str]]:
    """Yield the links of each file system; ``${Id}`` and ``${Id.Id}`` are the same."""
    merged: dict[str, list[str]] = {}
    for name, links in linked.items():
        merged.setdefault(name.removesuffix(".Id}").removesuffix("}"), []).extend(links)
    yield from merged.values()


def _check_directory_buckets(stack: Stack, *, region: Region | None, found: list[TemplateFinding]) -> None:
    policies = list(stack.of_type(EXPRESS_POLICY))
    for logical_id, properties in stack.of_type(DIRECTORY_BUCKET):
        names = {f"${{{logical_id}}}", symbol(properties.get("BucketName"))}
        own = [policy for _, policy in policies if symbol(policy.get("Bucket")) in names]
        bucket = read_directory_bucket(properties, region=region, lifecycle_granted=buckets.lifecycle_granted(own))
        aliases = referenced(properties.get("BucketEncryption")) & dict(stack.of_type(KEY_ALIAS)).keys()
        if aliases:
            bucket = replace(bucket, kms_key=f"alias/ (the alias {min(aliases)})")
        declaration = _declaration(stack, logical_id, DIRECTORY_BUCKET_REQUIRED)
        _add(found, logical_id, engine.check_declared_directory_bucket(declaration))
        _add(found, logical_id, engine.check_directory_bucket(bucket))
        stack.skipped += [f"{logical_id}.{name}: known only at deployment" for name in bucket.unknown_fields()]
    for logical_id, properties in policies:
        _add(found, logical_id, engine.check_express_policy(buckets.express_policy(properties)))


def _declaration(stack: Stack, logical_id: str, required: tuple[str, ...]) -> Declaration:
    """Return what a resource of the template declares; properties that a function or a loop makes are not missed."""
    properties = stack.properties(logical_id)
    lustre = properties.get("LustreConfiguration")
    given = stack.resources[logical_id].get("Properties")
    hidden = is_intrinsic(given) or any(str(name).startswith("Fn::") for name in properties)
    return Declaration(
        missing=() if hidden else tuple(name for name in required if is_absent(properties.get(name))),
        file_system_type=text(properties, "FileSystemType"),
        root_squash=isinstance(lustre, Mapping) and not is_absent(lustre.get("RootSquashConfiguration")),
    )


def _zone_of(stack: Stack, bucket: object) -> Text:
    """Return the zone of a directory bucket by the template, or by its name."""
    called = symbol(bucket)
    for logical_id, properties in stack.of_type(DIRECTORY_BUCKET):
        if called in (f"${{{logical_id}}}", symbol(properties.get("BucketName"))):
            return text(properties, "LocationName")
    return DirectoryBucket(name=called).named_zone()


def _add(found: list[TemplateFinding], logical_id: str, findings: tuple[Finding, ...]) -> None:
    for finding in findings:
        path = f"Properties.{finding.location}" if finding.location else ""
        found.append(TemplateFinding(logical_id=logical_id, finding=located(finding, path)))
