"""Checks that every construct runs on its inputs before CDK sees them.

CDK and cfn-lint accept nearly every illegal storage configuration; the service then refuses it after minutes or
hours. What AWS accepts is in `training_storage.planning.legality`; the checks here are of the arguments themselves.
Each says what is wrong, the value got, what is allowed and the way out, in one line.
Tokens (values known only at deployment) are passed over: nothing can be said about them at synth, which
`say_unchecked` says once.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from aws_cdk import Annotations, Stack, Stage, Token

from training_storage.planning import catalog
from training_storage.planning.legality import UNKNOWN, Unknown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from aws_cdk import IResource
    from constructs import IConstruct

    from training_storage.planning.legality import Finding

_Value = TypeVar("_Value")
_FACT = "training-storage:fact:"


class ConstructError(ValueError):
    """A construct was given a value that AWS would refuse, or that would lose data.

    Parameters
    ----------
    message
        One line.
    findings
        What the rules found, if they did.
    """

    def __init__(self, message: str, *, findings: Sequence[Finding] = ()) -> None:
        super().__init__(message)
        self.findings = tuple(findings)


def refuse(findings: Iterable[Finding]) -> None:
    """Refuse what the rules found, all of it at once and in one line.

    Raises
    ------
    ConstructError
        If there is a finding.
    """
    found = tuple(findings)
    if found:
        raise ConstructError(" Also: ".join(finding.message for finding in found), findings=found)


def known(value: _Value) -> _Value | Unknown:
    """Return `value` for the rules: UNKNOWN if it is known only at deployment."""
    return UNKNOWN if is_token(value) else value


def region_of(scope: IConstruct) -> catalog.Region | None:
    """Return the Region of the stack around `scope`, or None where it is not known at synth or to the catalog."""
    name = Stack.of(scope).region
    return None if is_token(name) else catalog.regions().get(name)


#: Id of the note on what could not be checked: ``Annotations.of(scope).acknowledge_info(UNCHECKED)`` silences it.
UNCHECKED = "training-storage:unchecked"


def say_unchecked(
    construct: IConstruct, fields: Iterable[str], *, parameters: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Note once on `construct` which `fields` could not be checked, because they are known only at deployment.

    Parameters
    ----------
    construct
        What they are fields of.
    fields
        As the rules call them.
    parameters
        What the construct calls them, where that is another name.
    """
    names = ", ".join(parameters.get(field, field) for field in fields)
    if names:
        Annotations.of(construct).add_info_v2(UNCHECKED, f"known only at deployment, so not checked at synth: {names}")


def require_same_region(scope: IConstruct, resource: IResource | None, *, what: str) -> None:
    """Refuse a `resource` of the caller that is known to be in another Region than the stack around `scope`.

    Raises
    ------
    ConstructError
        Naming both Regions.
    """
    if resource is None:
        return
    ours, theirs = Stack.of(scope).region, resource.env.region
    if not is_token(ours) and not is_token(theirs) and ours != theirs:
        raise ConstructError(
            f"{what} must be in {ours}, as the stack that uses it, got: {resource.node.path} in {theirs}"
        )


def environment_difference(construct: IConstruct, other: IConstruct) -> tuple[str, str, str] | None:
    """Return in what the stacks of two constructs are known to differ, "account" or "Region", and both values."""
    ours, theirs = Stack.of(construct), Stack.of(other)
    for what, here, there in (("account", ours.account, theirs.account), ("Region", ours.region, theirs.region)):
        if not is_token(here) and not is_token(there) and here != there:
            return what, here, there
    return None


def claim_name(scope: IConstruct, id: str, *, name: str, what: str, way_out: str) -> None:
    """Refuse `name` for the construct `id` in `scope` if another of the app has it in the same account and Region.

    Two stacks of different stages may go to different accounts, so names are compared within a stage where the account
    is not known.

    Raises
    ------
    ConstructError
        Naming `what`, the name and the construct that has it.
    """
    if is_token(name):
        return
    stack, stage = Stack.of(scope), Stage.of(scope)
    within = f"stage {stage.node.path if stage else ''}"
    account, region = (within if is_token(place) else place for place in (stack.account, stack.region))
    path = f"{scope.node.path}/{id}"
    holder = remember(scope, f"{what} {name} in {account}, {region}", path)
    if holder != path:
        raise ConstructError(f"{what} must be another for each, got: {name!r} twice (also in {holder}); {way_out}")


def remember(construct: IConstruct, fact: str, value: str) -> str:
    """Note a fact about the app of `construct`, and return its value: the one that was noted first."""
    known = remembered(construct, fact)
    if known is None:
        # Kept by the construct tree: the objects of Python come and go, and some are made anew each time.
        construct.node.root.node.add_metadata(f"{_FACT}{fact}", value)
    return value if known is None else known


def remembered(construct: IConstruct, fact: str) -> str | None:
    """Return the value of a fact about the app of `construct`; None if nobody noted it."""
    entries = construct.node.root.node.metadata
    return next((str(entry.data) for entry in entries if entry.type == f"{_FACT}{fact}"), None)


def is_token(value: object) -> bool:
    """Return whether `value` is known only at deployment."""
    # CDK knows lists, but not what else Python has of that kind.
    return bool(Token.is_unresolved(list(value) if isinstance(value, tuple) else value))


def capitalized(properties: Any) -> Any:  # noqa: ANN401 -- JSON, of whatever depth
    """Return resolved properties of an L1 as CloudFormation spells them: ``storageClass`` is ``StorageClass``."""
    if isinstance(properties, dict):
        return {name[:1].upper() + name[1:]: capitalized(value) for name, value in properties.items()}
    return [capitalized(value) for value in properties] if isinstance(properties, list) else properties


def require_one_of(value: object, allowed: Iterable[object], *, what: str, way_out: str = "") -> None:
    """Refuse a `value` that is not among `allowed`.

    Raises
    ------
    ConstructError
        Naming `what`, the value got and every allowed value.
    """
    choices = list(allowed)
    if is_token(value) or value in choices:
        return
    listed = ", ".join(str(choice) for choice in choices)
    raise ConstructError(_sentence(f"{what} must be one of {listed}, got: {value!r}", way_out))


def require_match(value: object, pattern: str, *, what: str, allowed: str, way_out: str = "") -> None:
    """Refuse a `value` that does not match the whole of the regular expression `pattern`.

    Raises
    ------
    ConstructError
        Naming `what`, the value got and `allowed` in words.
    """
    if is_token(value) or (isinstance(value, str) and re.fullmatch(pattern, value)):
        return
    raise ConstructError(_sentence(f"{what} must be {allowed}, got: {value!r}", way_out))


def require_job_name(job_name: str) -> None:
    """Refuse a name that is no folder of the lake.

    Raises
    ------
    ConstructError
        Naming what is allowed.
    """
    require_match(
        job_name,
        r"[a-z][a-z0-9-]{0,29}",
        what="job_name",
        allowed="a lowercase letter, then letters, digits and hyphens, at most 30",
    )


#: What parameters of these names take: an attribute that only this kind of thing has, and its name in words.
_KINDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "vpc": ("vpc_id", "an ec2.IVpc, such as ec2.Vpc or ec2.Vpc.from_vpc_attributes"),
        "subnet": ("subnet_id", "an ec2.ISubnet, such as vpc.private_subnets[0]"),
        "bucket": ("bucket_arn", "an s3.IBucket"),
        "access_logs_bucket": ("bucket_arn", "an s3.IBucket"),
        "encryption_key": ("key_arn", "a kms.IKey, such as kms.Key.from_key_arn"),
        "data_lake": ("derived_bucket_name", "a DataLake or an ImportedDataLake; wrap a bucket of yours in the latter"),
        "file_system": (
            "is_imported",
            "a LustreFileSystem or an ImportedLustreFileSystem of training_storage; wrap one of yours in the latter",
        ),
        "directory_bucket": ("zone_id", "a DirectoryBucket or an ImportedDirectoryBucket"),
        "cluster": ("start_nodes_command", "a GpuCluster, such as AwsPcsCluster"),
    }
)


def require_kinds(*, needed: Collection[str] = (), **given: object) -> None:
    """Refuse what is given as a construct and is none of its kind, by the names of parameters.

    By what it has and not by its class: what comes from CDK may be a stand-in for an interface.

    Parameters
    ----------
    needed
        Those that may not be None.
    **given
        The parameters.

    Raises
    ------
    ConstructError
        Naming the parameter, what it takes and the type got.
    """
    for what, value in given.items():
        attribute, kind = _KINDS[what]
        if value is None and what in needed:
            raise ConstructError(f"{what} must be given, {kind}, got: None")
        if value is not None and not hasattr(value, attribute):
            raise ConstructError(f"{what} must be {kind}, got: {_described(value)}")


def require_flags(**given: object) -> None:
    """Refuse what is neither True nor False, by the names of parameters: the text "false" would count as true.

    Raises
    ------
    ConstructError
        Naming the parameter and the value got.
    """
    for what, value in given.items():
        if not isinstance(value, bool):
            raise ConstructError(f"{what} must be True or False, got: {value!r}; values of the context are texts")


def _described(value: object) -> str:
    if isinstance(value, (str, int, float)):
        return repr(value)
    return f"{type(value).__module__.removeprefix('aws_cdk.')}.{type(value).__name__}"


def require_integer(
    value: object, *, what: str, minimum: int, maximum: int | None = None, multiple_of: int = 1, way_out: str = ""
) -> None:
    """Refuse a `value` that is not a whole number in the range, on the grid.

    Raises
    ------
    ConstructError
        Naming `what`, the value got and the range.
    """
    if is_token(value):
        return
    allowed = (
        f"a whole number from {minimum} to {maximum}" if maximum is not None else f"a whole number, at least {minimum}"
    )
    if multiple_of != 1:
        allowed += f", in steps of {multiple_of}"
    legal = (
        isinstance(value, int)
        and not isinstance(value, bool)
        and value >= minimum
        and (maximum is None or value <= maximum)
        and value % multiple_of == 0
    )
    if not legal:
        raise ConstructError(_sentence(f"{what} must be {allowed}, got: {value!r}", way_out))


def _sentence(message: str, way_out: str) -> str:
    return f"{message}; {way_out}" if way_out else message
