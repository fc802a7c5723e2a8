"""A link between a directory of a Lustre file system and a prefix of the data lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import aws_fsx as fsx
from constructs import Construct

from training_storage.lustre_file_system import LustreFileSystem, keep_forever
from training_storage.planning.catalog.lustre import association_limits
from training_storage.validation import ConstructError, is_token, require_integer, require_match, require_one_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from training_storage.data_lake import DataLakeBase

__all__ = ["DataRepositoryAssociation"]


class DataRepositoryAssociation(Construct):
    """One link; links of a file system are made one after another, and after the lake's policies.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    file_system
        The file system.
    file_system_path
        Directory on it, such as "/datasets"; "/" only if it is the first and only link.
    data_lake
        The lake.
    prefix
        Prefix in the lake, such as "datasets/"; it may not lie within another linked prefix, nor around it.
    import_events, export_events
        Any of NEW, CHANGED and DELETED: changes that flow in from the lake, or out to it, by themselves. None by
        default, as in the API.
    batch_import_metadata_on_create
        Read the names and sizes of all objects once the link stands. Off by default: with millions of objects this
        outlasts the creation.
    imported_file_chunk_size_mib
        1 to 512,000 MiB: how a file is striped when its content is read in; 1,024 if none is given.

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
        file_system: LustreFileSystem,
        file_system_path: str,
        data_lake: DataLakeBase,
        prefix: str,
        import_events: Sequence[str] = (),
        export_events: Sequence[str] = (),
        batch_import_metadata_on_create: bool = False,
        imported_file_chunk_size_mib: int | None = None,
    ) -> None:
        _require_legal_path(file_system_path)
        _require_legal_prefix(prefix)
        _require_events(import_events, "import_events")
        _require_events(export_events, "export_events")
        limits = association_limits()
        chunk_size_mib = (
            limits.chunk_size_mib_default if imported_file_chunk_size_mib is None else imported_file_chunk_size_mib
        )
        require_integer(
            chunk_size_mib, what="imported_file_chunk_size_mib", minimum=1, maximum=limits.chunk_size_mib_maximum
        )
        _require_room(file_system, file_system_path)
        for link in file_system.links:
            _require_disjoint_paths(file_system_path, link.file_system_path)
            if link.data_lake is data_lake:
                _require_disjoint_prefixes(prefix, link.prefix)
        super().__init__(scope, id)
        self.file_system_path: str = file_system_path
        self.data_lake: DataLakeBase = data_lake
        self.prefix: str = prefix

        self._resource = fsx.CfnDataRepositoryAssociation(
            self,
            "Resource",
            file_system_id=file_system.file_system_id,
            file_system_path=file_system_path,
            data_repository_path=data_lake.s3_uri(prefix),
            batch_import_meta_data_on_create=batch_import_metadata_on_create,
            imported_file_chunk_size=chunk_size_mib,
            s3=_policies(import_events, export_events),
        )
        keep_forever(self._resource)
        # FSx works on one link at a time and fails the second of two that start together.
        if file_system.links:
            self._resource.node.add_dependency(file_system.links[-1].resource)
        # FSx reads the bucket policy and uses the key while it makes the link.
        self._resource.node.add_dependency(data_lake)
        file_system.links.append(self)
        data_lake.mark_linked()
        self.association_id: str = self._resource.ref

    @property
    def resource(self) -> fsx.CfnDataRepositoryAssociation:
        """The L1 resource."""
        return self._resource


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


def _require_legal_path(path: str) -> None:
    require_match(
        path,
        r"/|(/[^/\0]+)+/?",
        what="file_system_path",
        allowed="an absolute directory of the file system such as '/datasets'",
    )


def _require_legal_prefix(prefix: str) -> None:
    require_match(
        prefix,
        r"([^/]+/)*",
        what="prefix",
        allowed="a path that ends with a slash and does not begin with one, such as 'datasets/', or '' for all",
    )


def _require_events(events: Sequence[str], what: str) -> None:
    if isinstance(events, str):
        raise ConstructError(f"{what} must be a list such as ['NEW', 'CHANGED'], got: {events!r}")
    for event in events:
        require_one_of(event, association_limits().events, what=what)
    if len(set(events)) != len(events):
        raise ConstructError(f"{what} must name each event once, got: {', '.join(events)}")


def _require_room(file_system: LustreFileSystem, path: str) -> None:
    most = association_limits().per_file_system_maximum
    if len(file_system.links) >= most:
        raise ConstructError(
            f"a file system must have at most {most} data repository associations, got: one more ({path});"
            " link a common parent prefix instead"
        )


def _require_disjoint_paths(path: str, other: str) -> None:
    if is_token(path) or is_token(other):
        return
    ours, theirs = path.rstrip("/") + "/", other.rstrip("/") + "/"
    if "/" in (ours, theirs):
        raise ConstructError(
            f"file_system_path '/' must be the only data repository association of a file system, got: {path}"
            f" beside {other}; link directories such as '/datasets' instead"
        )
    if ours.startswith(theirs) or theirs.startswith(ours):
        raise ConstructError(
            f"file_system_path must not lie within or around another linked path, got: {path} beside {other};"
            " choose a directory of its own"
        )


def _require_disjoint_prefixes(prefix: str, other: str) -> None:
    if is_token(prefix) or is_token(other):
        return
    if prefix.startswith(other) or other.startswith(prefix):
        raise ConstructError(
            f"prefix must not lie within or around another linked prefix, got: {prefix!r} beside {other!r};"
            " choose a prefix of its own"
        )
