"""A link between a directory of a Lustre file system and a prefix of the data lake or of another bucket."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aws_cdk import Annotations, Stack
from aws_cdk import aws_fsx as fsx
from constructs import Construct

from training_storage.deletion_policy import keep_forever
from training_storage.fsx_key_access import note_unknown_key_policy
from training_storage.linked_bucket import linked_bucket
from training_storage.planning import legality
from training_storage.planning.catalog.lustre import association_limits
from training_storage.validation import (
    ConstructError,
    environment_difference,
    is_token,
    known,
    refuse,
    require_flags,
    require_kinds,
    require_match,
    say_unchecked,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aws_cdk import aws_s3 as s3
    from constructs import IConstruct

    from training_storage.data_lake_base import DataLakeBase
    from training_storage.lustre_file_system_base import LustreFileSystemBase

__all__ = ["DataRepositoryAssociation"]

#: What the rules call otherwise.
_PARAMETERS = {"chunk_size_mib": "imported_file_chunk_size_mib", "data_repository_path": "prefix"}


class DataRepositoryAssociation(Construct):
    """One link; links of a file system are made one after another, and after the lake's policies.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    file_system
        The file system, made here or imported.
    file_system_path
        Directory on it, such as "/datasets"; "/" only if it is the first and only link.
    data_lake
        The lake; either this or `bucket`.
    bucket
        Any other bucket, made here or imported. If it is encrypted with a KMS key, the policy of the key must let FSx
        in (`allow_file_systems_to_use_key`); a bucket of another account must let in the account of the file system.
    prefix
        Prefix in the bucket, such as "datasets/"; it may not lie within another linked prefix, nor around it.
    import_events, export_events
        Any of NEW, CHANGED and DELETED: changes that flow in from the lake, or out to it, by themselves. None by
        default, as in the API.
    batch_import_metadata_on_create
        Read the names and sizes of all objects once the link stands. Off by default: with millions of objects this
        outlasts the creation. None leaves it out, for a link that stands without it in its template: stating it would
        replace the link.
    imported_file_chunk_size_mib
        1 to 512,000 MiB: how a file is striped when its content is read in; 1,024 if none is given.
    writable
        Whether the directory holds what is not in the lake yet, so that `FinalExport` exports it. By default: unless
        changes flow in only, as they do for data sets.

    Attributes
    ----------
    association_id, resource_arn
        Known at deployment.
    bucket, data_lake, prefix, file_system_path
        What is linked; the lake is None for a bucket that is none.

    Raises
    ------
    ConstructError
        For a path, prefix or number of links that FSx would refuse.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        file_system: LustreFileSystemBase,
        file_system_path: str,
        prefix: str,
        data_lake: DataLakeBase | None = None,
        bucket: s3.IBucket | None = None,
        import_events: Sequence[str] = (),
        export_events: Sequence[str] = (),
        batch_import_metadata_on_create: bool | None = False,
        imported_file_chunk_size_mib: int | None = None,
        writable: bool | None = None,
    ) -> None:
        if writable is not None:
            require_flags(writable=writable)
        require_kinds(needed=("file_system",), file_system=file_system, data_lake=data_lake, bucket=bucket)
        if file_system.is_gated:
            raise ConstructError(
                f"links must be made before the FinalExport of their file system, got: {file_system_path} after it;"
                " what the gate does not know of would be lost"
            )
        linked = _bucket_of(data_lake, bucket)
        _require_legal_prefix(prefix)
        _require_list(import_events, "import_events")
        _require_list(export_events, "export_events")
        _require_same_environment(scope, file_system)
        if data_lake is not None:
            data_lake.refuse_elsewhere(scope)
        chunk_size_mib = (
            association_limits().chunk_size_mib_default
            if imported_file_chunk_size_mib is None
            else imported_file_chunk_size_mib
        )
        spec = legality.Link(
            file_system_path=known(file_system_path),
            data_repository_path=known(f"s3://{_called(data_lake or linked, linked)}/{prefix}"),
            chunk_size_mib=known(chunk_size_mib),
            import_events=_events(import_events),
            export_events=_events(export_events),
            file_system=file_system.spec,
            file_system_region=_known_region(Stack.of(file_system).region),
            bucket_region=_known_region(linked.env.region),
        )
        others = [link.spec for link in file_system.links]
        refuse(
            (
                *legality.check_link(spec),
                *legality.check_link_beside(spec, others),
                *_backup_findings(file_system.spec),
            )
        )
        previous = _previous(scope, file_system)
        super().__init__(scope, id)
        #: The link as the rules see it.
        self.spec: legality.Link = spec
        say_unchecked(self, spec.unknown_fields(), parameters=_PARAMETERS)
        self.file_system_path: str = file_system_path
        self.bucket: s3.IBucket = linked
        self.data_lake: DataLakeBase | None = data_lake
        self.prefix: str = prefix
        self.writable: bool = (bool(export_events) or not import_events) if writable is None else writable

        self._resource = fsx.CfnDataRepositoryAssociation(
            self,
            "Resource",
            file_system_id=file_system.file_system_id,
            file_system_path=file_system_path,
            data_repository_path=f"s3://{linked.bucket_name}/{prefix}",
            batch_import_meta_data_on_create=batch_import_metadata_on_create,
            imported_file_chunk_size=chunk_size_mib,
            s3=_policies(import_events, export_events),
        )
        keep_forever(self._resource)
        # FSx works on one link at a time and fails the second of two that start together.
        if previous is not None:
            self._resource.node.add_dependency(previous.resource)
        # FSx reads the bucket policy and uses the key while it makes the link. An imported lake does not contain what
        # it was given, so each is waited for.
        key = linked.encryption_key if data_lake is None else data_lake.encryption_key
        self._resource.node.add_dependency(*(needed for needed in (data_lake, linked, key) if needed is not None))
        file_system.links.append(self)
        if data_lake is not None:
            data_lake.mark_linked(prefix=prefix)
        else:
            self._mark_linked(prefix, imports=bool(import_events))
        if file_system.is_imported:
            _note_links_of_others(file_system)
        self.association_id: str = self._resource.ref
        self.resource_arn: str = self._resource.attr_resource_arn

    @property
    def resource(self) -> fsx.CfnDataRepositoryAssociation:
        """The L1 resource."""
        return self._resource

    def _mark_linked(self, prefix: str, *, imports: bool) -> None:
        linked_bucket(self.bucket).add(prefix=prefix, imports=imports)
        if self.bucket.encryption_key is not None:
            note_unknown_key_policy(self.bucket, self.bucket.encryption_key)


def _policies(
    import_events: Sequence[str], export_events: Sequence[str]
) -> fsx.CfnDataRepositoryAssociation.S3Property | None:
    if not import_events and not export_events:
        return None
    return fsx.CfnDataRepositoryAssociation.S3Property(
        auto_import_policy=fsx.CfnDataRepositoryAssociation.AutoImportPolicyProperty(events=list(import_events))
        if import_events
        else None,
        auto_export_policy=fsx.CfnDataRepositoryAssociation.AutoExportPolicyProperty(events=list(export_events))
        if export_events
        else None,
    )


def _require_legal_prefix(prefix: str) -> None:
    require_match(
        prefix,
        r"([^/]+/)*",
        what="prefix",
        allowed="a path that ends with a slash and does not begin with one, such as 'datasets/', or '' for all",
    )


def _require_list(events: Sequence[str], what: str) -> None:
    if isinstance(events, str):
        raise ConstructError(f"{what} must be a list such as ['NEW', 'CHANGED'], got: {events!r}")


def _bucket_of(data_lake: DataLakeBase | None, bucket: s3.IBucket | None) -> s3.IBucket:
    if data_lake is not None and bucket is None:
        return data_lake.bucket
    if bucket is not None and data_lake is None:
        return bucket
    got = "neither" if bucket is None else "both"
    raise ConstructError(f"data_lake or bucket must be given, got: {got}; a link has one other end")


def _called(owner: IConstruct, bucket: s3.IBucket) -> str:
    """Return the bucket's name for the rules; one that is known only at deployment by its place in the tree."""
    return f"${{{owner.node.path}}}" if is_token(bucket.bucket_name) else bucket.bucket_name


def _events(events: Sequence[str]) -> tuple[object, ...] | legality.Unknown:
    """Return events for the rules; one that is not known makes the whole list unknown."""
    return legality.UNKNOWN if any(map(is_token, (events, *events))) else tuple(events)


def _backup_findings(system: legality.FileSystem) -> list[legality.Finding]:
    """Return what the rules say of the backups of a file system that is being linked."""
    if not system.backup_retention_days:
        return []
    found = legality.check_file_system(replace(system, linked=True))
    return [finding for finding in found if finding.rule == "lustre-backups"]


def _known_region(name: str) -> str | None:
    """Return a Region, or None where it is known only at deployment."""
    return None if is_token(name) else name


def _require_same_environment(scope: Construct, file_system: LustreFileSystemBase) -> None:
    difference = environment_difference(scope, file_system)
    if difference is not None:
        what, here, there = difference
        raise ConstructError(
            f"a link must be made in the {what} of its file system, {there}, got: a stack in {here}; make it in a"
            " stack of that environment"
        )


def _previous(scope: Construct, file_system: LustreFileSystemBase) -> DataRepositoryAssociation | None:
    """Return the link that a new one in `scope` must wait for; None if there is none.

    The stack of the file system is deployed before those that link to it: its links wait for none of theirs.
    """
    here = _top(scope)
    beside = [link for link in file_system.links if _top(link) == here]
    if beside:
        own = Stack.of(scope).node.path
        stacks = [Stack.of(link).node.path for link in beside]
        if stacks[-1] != own and own in stacks:
            raise ConstructError(
                f"links of nested stacks must be made stack by stack, got: one in {own}, then in {stacks[-1]}, then in"
                f" {own} again; FSx works on one link at a time, and the stacks would wait for each other"
            )
        return beside[-1]
    if here == _top(file_system) and not file_system.is_imported:
        return None
    elsewhere = [link for link in file_system.links if file_system.is_imported or _top(link) != _top(file_system)]
    return elsewhere[-1] if elsewhere else None


def _top(construct: IConstruct) -> str:
    """Return the path of the stack that is deployed with `construct`: not a nested one."""
    stack = Stack.of(construct)
    while stack.nested_stack_parent is not None:
        stack = stack.nested_stack_parent
    return stack.node.path


def _note_links_of_others(file_system: LustreFileSystemBase) -> None:
    Annotations.of(file_system).add_info_v2(
        "training-storage:imported-links",
        f"not checked at synth: links that {file_system.file_system_id} has already. Paths and prefixes must not lie"
        f" within one another, and there may be {association_limits().per_file_system_maximum} links in all",
    )
