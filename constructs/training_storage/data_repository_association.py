"""A link between a directory of a Lustre file system and a prefix of the data lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Stack
from aws_cdk import aws_fsx as fsx
from constructs import Construct

from training_storage.lustre_file_system import LustreFileSystem, keep_forever
from training_storage.planning import legality
from training_storage.planning.catalog.lustre import association_limits
from training_storage.validation import ConstructError, is_token, known, refuse, require_match, say_unchecked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aws_cdk import IResource

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
    writable
        Whether the directory holds what is not in the lake yet, so that `FinalExport` exports it. By default: unless
        changes flow in only, as they do for data sets.

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
        writable: bool | None = None,
    ) -> None:
        if file_system.is_gated:
            raise ConstructError(
                f"links must be made before the FinalExport of their file system, got: {file_system_path} after it;"
                " what the gate does not know of would be lost"
            )
        _require_legal_prefix(prefix)
        _require_list(import_events, "import_events")
        _require_list(export_events, "export_events")
        chunk_size_mib = (
            association_limits().chunk_size_mib_default
            if imported_file_chunk_size_mib is None
            else imported_file_chunk_size_mib
        )
        spec = legality.Link(
            file_system_path=known(file_system_path),
            data_repository_path=known(f"s3://${{{data_lake.node.path}}}/{prefix}"),
            chunk_size_mib=known(chunk_size_mib),
            import_events=tuple(map(known, import_events)),
            export_events=tuple(map(known, export_events)),
            file_system=file_system.spec,
            file_system_region=_region(file_system),
            bucket_region=_region(data_lake.bucket),
        )
        others = [link.spec for link in file_system.links]
        refuse((*legality.check_link(spec), *legality.check_link_beside(spec, others)))
        super().__init__(scope, id)
        #: The link as the rules see it.
        self.spec: legality.Link = spec
        say_unchecked(self, spec.unknown_fields())
        self.file_system_path: str = file_system_path
        self.data_lake: DataLakeBase = data_lake
        self.prefix: str = prefix
        self.writable: bool = (bool(export_events) or not import_events) if writable is None else writable

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
        data_lake.mark_linked(prefix=prefix)
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


def _region(resource: IResource | LustreFileSystem) -> str | None:
    """Return the Region of a resource, or None where it is known only at deployment."""
    name = Stack.of(resource).region if isinstance(resource, LustreFileSystem) else resource.env.region
    return None if is_token(name) else name
