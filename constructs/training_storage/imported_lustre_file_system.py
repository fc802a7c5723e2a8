"""A Lustre file system that exists already."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from aws_cdk import Aws, Stack

from training_storage.lustre_file_system_base import LustreFileSystemBase
from training_storage.planning import catalog, legality
from training_storage.security_group_rules import SecurityGroupRules, rules_description
from training_storage.validation import ConstructError, known, region_of, require_match, require_same_region

if TYPE_CHECKING:
    from aws_cdk import aws_ec2 as ec2
    from constructs import Construct

__all__ = ["ImportedLustreFileSystem"]

_Given = TypeVar("_Given")


class ImportedLustreFileSystem(LustreFileSystemBase):
    """A file system that another app made, or nobody's app: it can be linked, mounted and granted on, not changed.

    Parameters
    ----------
    scope, id
        Where in the construct tree; the file system is in the Region and account of its stack.
    file_system_id
        Such as fs-0123456789abcdef0.
    mount_name
        As `aws fsx describe-file-systems` says; not needed for links.
    dns_name
        The DNS name; made of id and Region if none is given.
    security_group
        Group of its servers; needed for `allow_from`.
    client_security_group
        Group that its clients attach; needed for clusters.
    deployment_type, storage_type, storage_capacity_gib, file_system_type_version, efa_enabled
        As far as they are known: links are checked against them. With EFA, `allow_from` opens everything between the
        groups.

    Attributes
    ----------
    file_system_id, dns_name, mount_name, resource_arn
        What mounts and tasks need.
    security_group, client_security_group
        As given.
    security_group_rules
        What `allow_from` writes, in this stack.
    links
        The data repository associations that this app made on it; those of others are not known.

    Raises
    ------
    ConstructError
        For an id or a mount name that is none; also when something is asked for that was not given.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        file_system_id: str,
        mount_name: str | None = None,
        dns_name: str | None = None,
        security_group: ec2.ISecurityGroup | None = None,
        client_security_group: ec2.ISecurityGroup | None = None,
        deployment_type: str | None = None,
        storage_type: str | None = None,
        storage_capacity_gib: int | None = None,
        file_system_type_version: str | None = None,
        efa_enabled: bool = False,
    ) -> None:
        require_match(
            file_system_id,
            r"fs-[0-9a-f]{8,}",
            what="file_system_id",
            allowed="the id of a file system such as fs-0123456789abcdef0",
        )
        if mount_name is not None:
            require_match(
                mount_name,
                r"[A-Za-z0-9_-]{1,8}",
                what="mount_name",
                allowed="1 to 8 letters, digits, hyphens and underscores, as 'aws fsx describe-file-systems' says",
            )
        require_same_region(scope, security_group, what="security_group")
        require_same_region(scope, client_security_group, what="client_security_group")
        super().__init__(scope, id)
        self.file_system_id = file_system_id
        self.dns_name = dns_name or f"{file_system_id}.fsx.{Stack.of(self).region}.{Aws.URL_SUFFIX}"
        self.resource_arn = self._arn("file-system", file_system_id)
        self.links = []
        self.spec = legality.FileSystem(
            deployment_type=_given(deployment_type),
            storage_type=_given(storage_type),
            storage_capacity_gib=legality.UNKNOWN if storage_capacity_gib is None else known(storage_capacity_gib),
            file_system_type_version=_given(file_system_type_version),
            efa_enabled=known(efa_enabled),
            region=region_of(scope),
        )
        self._mount_name = mount_name
        self._security_group = security_group
        self._client_security_group = client_security_group
        self.security_group_rules: SecurityGroupRules = SecurityGroupRules(
            self,
            "Rules",
            tcp_ports=None if efa_enabled else catalog.lustre.ports(),
            description=rules_description(efa_enabled=efa_enabled),
        )

    @property
    def is_imported(self) -> bool:
        """Somebody else made it."""
        return True

    @property
    def mount_name(self) -> str:  # type: ignore[override]
        """The mount name that was given."""
        return self._needed(self._mount_name, "mount_name")

    @property
    def security_group(self) -> ec2.ISecurityGroup:  # type: ignore[override]
        """The servers' group that was given."""
        return self._needed(self._security_group, "security_group")

    @property
    def client_security_group(self) -> ec2.ISecurityGroup:  # type: ignore[override]
        """The clients' group that was given."""
        return self._needed(self._client_security_group, "client_security_group")

    def _needed(self, value: _Given | None, what: str) -> _Given:
        if value is None:
            raise ConstructError(
                f"{what} must be given to ImportedLustreFileSystem {self.node.path} for this, got: none; it cannot be"
                " found out at synth"
            )
        return value


def _given(value: str | None) -> str | legality.Unknown:
    return legality.UNKNOWN if value is None else known(value)
