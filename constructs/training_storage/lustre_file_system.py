"""An FSx for Lustre file system with the security groups that its clients need."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aws_cdk import Annotations, ArnFormat, CfnDeletionPolicy, CfnTag, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_logs as logs

from training_storage.deletion_policy import keep_forever
from training_storage.lustre_file_system_base import LustreFileSystemBase
from training_storage.planning import catalog, legality
from training_storage.planning.catalog.limits import lustre_limits
from training_storage.security_group_rules import SecurityGroupRules, rules_description
from training_storage.validation import (
    ConstructError,
    is_token,
    known,
    refuse,
    region_of,
    require_flags,
    require_kinds,
    require_one_of,
    require_same_region,
    say_unchecked,
)

if TYPE_CHECKING:
    from aws_cdk import aws_kms as kms
    from constructs import Construct, IDependable

    from training_storage.data_repository_association import DataRepositoryAssociation

__all__ = ["LustreFileSystem"]

_LOG_GROUP_PREFIX = "/aws/fsx/"  # FSx accepts no other destination (CreateFileSystem, LustreLogCreateConfiguration).
_TIERING = "INTELLIGENT_TIERING"
_SCRATCH = "SCRATCH_2"
_SERVERS = "FSx for Lustre file servers"
_CLIENTS = "FSx for Lustre clients"
#: What the rules call otherwise.
_PARAMETERS = {
    "backup_retention_days": "automatic_backup_retention_days",
    "logging.group": "log_group",
    "logging.level": "log_level",
    "metadata.iops": "metadata_iops",
    "read_cache.size_gib": "read_cache_gib",
}


class LustreFileSystem(LustreFileSystemBase):
    """A file system in one subnet; by default PERSISTENT_2 on SSD with metadata configuration, logs and encryption.

    It has two security groups: its own, and a client group that every node attaches; each is made here unless one is
    given. The rules between them go by group id both ways, and the file system waits for every one of them.
    CloudFormation never deletes the file system or its links once they stand (docs/decisions/0002): both are retained,
    whatever becomes of the stack. `FinalExport` deletes them, after their data is in the lake.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    vpc, subnet
        The network. A Lustre file system lives in exactly one subnet; clients should be in the same zone.
    deployment_type
        PERSISTENT_2; PERSISTENT_1, which lacks metadata configuration and EFA; SCRATCH_2, which lacks these and a KMS
        key, and does not replicate data: a failed server loses what is not in the lake. `lacks` lists it.
    storage_type
        SSD; HDD (PERSISTENT_1), which needs `drive_cache_type`; INTELLIGENT_TIERING (PERSISTENT_2), which cannot be
        linked to the lake and takes `throughput_capacity` instead of capacity and throughput. None leaves it to FSx,
        which takes SSD: for a file system that stands without one in its template, since FSx refuses to change it.
    storage_capacity_gib
        1,200 or a multiple of 2,400 GiB; with EFA a multiple of the step of the throughput tier; on HDD a multiple of
        6,000 (12 MB/s per TiB) or 1,800 (40); None for INTELLIGENT_TIERING.
    per_unit_storage_throughput
        MB/s per TiB: 125, 250, 500 or 1000; for PERSISTENT_1 50, 100 or 200 on SSD, 12 or 40 on HDD; None for
        SCRATCH_2, which has 200, and for INTELLIGENT_TIERING.
    throughput_capacity
        MB/s of INTELLIGENT_TIERING, a multiple of 4,000.
    small_tiering_throughput
        Accept 1,000 and 2,000 MB/s as well, about which AWS's sources disagree (docs/decisions/0005).
    read_cache_gib
        SSD read cache of INTELLIGENT_TIERING: None lets it follow the throughput (5 GiB per MB/s), 0 is none.
    drive_cache_type
        READ adds an SSD cache of 20 % to HDD, NONE adds none; only for HDD.
    metadata_iops
        Provisioned metadata IOPS; None lets FSx choose by capacity (AUTOMATIC), on INTELLIGENT_TIERING 6,000.
    metadata_configuration
        Write a metadata configuration for PERSISTENT_2, because FSx cannot add it later. False only for a file system
        that stands without one, such as one that CDK's `fsx.LustreFileSystem` made. It has no EFA then.
    efa_enabled
        Elastic Fabric Adapter and GPUDirect Storage; only at creation.
    data_compression
        LZ4 or NONE.
    encryption_key
        KMS key; the AWS-managed one if none is given. It must outlive the file system. SCRATCH_2 takes none.
    log_level
        DISABLED, WARN_ONLY, ERROR_ONLY or WARN_ERROR.
    log_group
        Destination of the logs, named /aws/fsx/…; one is made if none is given.
    weekly_maintenance_start_time
        d:HH:MM in UTC with d from 1 (Monday) to 7; FSx chooses if none is given.
    automatic_backup_retention_days
        0 to 90; 0 makes no backups, and takes away those that FSx made by itself. Linked file systems and SCRATCH_2
        have none: their durable copy is the lake.
    file_system_type_version
        Lustre version; 2.15 is the only one with metadata configuration and EFA. China has 2.12 at most. None leaves
        it to FSx, as it was for a file system that stands without one in its template.
    security_group
        Group of the file servers, instead of one made here.
    client_security_group
        Group that clients attach, instead of one made here; it may be the group of the servers.
    manage_security_group_rules
        Write the rules between the two groups. False leaves the caller's groups as they are: before the file system is
        made they must let the Lustre ports (with EFA everything) through in both directions, by group id.
    keep_l2_security_group
        Keep the group that CDK's `fsx.LustreFileSystem` of the same id made in this place, with its logical id,
        description and rules: another group would replace the file system.
    replacement_protection
        Let an update that would replace the file system fail and roll back, instead of leaving the old one behind and
        mounting an empty new one (docs/decisions/0008). It gives a security group made here a fixed name: that of the
        servers, else that of the clients; with both groups of the caller there is no such protection.

    Attributes
    ----------
    security_group, client_security_group
        The file system's group, and the group that clients attach.
    security_group_rules
        The rules between them; None if they are the caller's.
    log_group
        Where the logs go; None if they are off.
    file_system_id, dns_name, mount_name, resource_arn
        Known at deployment.
    links
        The data repository associations made so far.
    vpc, subnet
        The network.

    Raises
    ------
    ConstructError
        For a configuration that FSx would refuse, or something of the caller in another Region.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc,
        subnet: ec2.ISubnet,
        deployment_type: str = "PERSISTENT_2",
        storage_type: str | None = "SSD",
        storage_capacity_gib: int | None = None,
        per_unit_storage_throughput: int | None = None,
        throughput_capacity: int | None = None,
        small_tiering_throughput: bool = False,
        read_cache_gib: int | None = None,
        drive_cache_type: str | None = None,
        metadata_iops: int | None = None,
        metadata_configuration: bool = True,
        efa_enabled: bool = False,
        data_compression: str = "LZ4",
        encryption_key: kms.IKey | None = None,
        log_level: str = "WARN_ERROR",
        log_group: logs.ILogGroup | None = None,
        weekly_maintenance_start_time: str | None = None,
        automatic_backup_retention_days: int = 0,
        file_system_type_version: str | None = "2.15",
        security_group: ec2.ISecurityGroup | None = None,
        client_security_group: ec2.ISecurityGroup | None = None,
        manage_security_group_rules: bool = True,
        keep_l2_security_group: bool = False,
        replacement_protection: bool = True,
    ) -> None:
        require_one_of(
            deployment_type,
            ("PERSISTENT_2", "PERSISTENT_1", "SCRATCH_2"),
            what="deployment_type",
            way_out="SCRATCH_1 cannot be linked and is not made here",
        )
        if metadata_iops is not None and not metadata_configuration:
            raise ConstructError(
                f"metadata_iops must be left out with metadata_configuration=False, got: {metadata_iops!r}; FSx cannot"
                " add a metadata configuration to a file system"
            )
        _require_groups(security_group, manage=manage_security_group_rules, keep_l2=keep_l2_security_group)
        require_flags(
            small_tiering_throughput=small_tiering_throughput,
            metadata_configuration=metadata_configuration,
            manage_security_group_rules=manage_security_group_rules,
            keep_l2_security_group=keep_l2_security_group,
            replacement_protection=replacement_protection,
        )
        require_kinds(needed=("vpc", "subnet"), vpc=vpc, subnet=subnet, encryption_key=encryption_key)
        for what, given in (
            ("vpc", vpc),
            ("subnet", subnet),
            ("encryption_key", encryption_key),
            ("log_group", log_group),
            ("security_group", security_group),
            ("client_security_group", client_security_group),
        ):
            require_same_region(scope, given, what=what)
        # A type that is known only at deployment is taken for the default one.
        second = is_token(deployment_type) or deployment_type == "PERSISTENT_2"
        # Scratch has no backups at all, and does not take the property.
        backup_days = automatic_backup_retention_days
        backups = (
            None if backup_days == 0 and (is_token(deployment_type) or deployment_type == _SCRATCH) else backup_days
        )
        tiering = storage_type == _TIERING
        metadata = None
        if metadata_iops is not None or (second and metadata_configuration):
            metadata = _metadata(metadata_iops, tiering=tiering)
        cache = _read_cache(read_cache_gib) if tiering or read_cache_gib is not None else None
        spec = legality.FileSystem(
            deployment_type=known(deployment_type),
            storage_type="SSD" if storage_type is None else known(storage_type),
            storage_capacity_gib=known(storage_capacity_gib),
            per_unit_storage_throughput=known(per_unit_storage_throughput),
            throughput_capacity=known(throughput_capacity),
            small_tiering_throughput=small_tiering_throughput,
            file_system_type_version=known(file_system_type_version),
            metadata=metadata,
            efa_enabled=known(efa_enabled),
            drive_cache_type=known(drive_cache_type),
            read_cache=cache,
            encryption_key=legality.UNKNOWN if encryption_key else None,
            logging=legality.Logging(level=known(log_level), group=_group_name(log_group)),
            data_compression=known(data_compression),
            weekly_maintenance_start_time=known(weekly_maintenance_start_time),
            backup_retention_days=known(backups),
            subnets=1,
            region=region_of(scope),
        )
        refuse(legality.check_file_system(spec))
        super().__init__(scope, id)
        self.links: list[DataRepositoryAssociation] = []
        self._gated = False
        self.vpc: ec2.IVpc = vpc
        self.subnet: ec2.ISubnet = subnet
        self.spec: legality.FileSystem = spec
        say_unchecked(self, spec.unknown_fields(), parameters=_PARAMETERS)

        identity = _identity(
            deployment_type,
            f"Lustre {file_system_type_version or 'by default'}",
            "" if is_token(per_unit_storage_throughput) else f"{per_unit_storage_throughput or 'default'} MB/s per TiB",
            f"drive cache {drive_cache_type}" if drive_cache_type else "",
            subnet.subnet_id,
            encryption_key.key_arn if encryption_key else "aws/fsx",
        )
        own = security_group or (self._l2_security_group() if keep_l2_security_group else None)
        # CloudFormation refuses to replace a resource that has a name of its own, and a group's description cannot
        # change without replacement. So the description holds what replaces the file system: the group is updated
        # before the file system, and a change stops there.
        self.security_group = own or self._make_security_group(
            "SecurityGroup", _SERVERS, identity if replacement_protection else "", suffix=""
        )
        self.client_security_group = client_security_group or self._make_security_group(
            "ClientSecurityGroup", _CLIENTS, identity if replacement_protection and own else "", suffix="/clients"
        )
        if replacement_protection and own and client_security_group:
            Annotations.of(self).add_info_v2(
                "training-storage:replacement-protection",
                "no replacement protection: it needs a security group that is made here, and both are given; an update"
                " that replaces the file system is not stopped (training-storage check --against finds it)",
            )
        self.security_group_rules = None
        if manage_security_group_rules:
            self.security_group_rules = self._make_rules(efa_enabled=efa_enabled)

        self.log_group = log_group
        if log_group is None and log_level != "DISABLED":
            self.log_group = logs.LogGroup(
                self,
                "Logs",
                log_group_name=f"{_LOG_GROUP_PREFIX}{self._unique_name()}",
                retention=logs.RetentionDays.ONE_MONTH,
                removal_policy=RemovalPolicy.DESTROY,
            )

        self._resource = fsx.CfnFileSystem(
            self,
            "Resource",
            file_system_type="LUSTRE",
            file_system_type_version=file_system_type_version,
            storage_type=storage_type,
            storage_capacity=storage_capacity_gib,
            subnet_ids=[subnet.subnet_id],
            security_group_ids=[self.security_group.security_group_id],
            kms_key_id=encryption_key.key_arn if encryption_key else None,
            lustre_configuration=fsx.CfnFileSystem.LustreConfigurationProperty(
                deployment_type=deployment_type,
                per_unit_storage_throughput=per_unit_storage_throughput,
                data_compression_type=data_compression,
                throughput_capacity=throughput_capacity,
                drive_cache_type=drive_cache_type,
                data_read_cache_configuration=None
                if cache is None
                else fsx.CfnFileSystem.DataReadCacheConfigurationProperty(
                    sizing_mode=str(cache.sizing_mode), size_gib=read_cache_gib or None
                ),
                efa_enabled=_efa(
                    efa_enabled, stated=second and metadata_configuration and not is_token(deployment_type)
                ),
                metadata_configuration=None
                if metadata is None
                else fsx.CfnFileSystem.MetadataConfigurationProperty(
                    mode=str(metadata.mode), iops=_iops(metadata_iops, tiering=tiering)
                ),
                log_configuration=self._log_configuration(log_level),
                weekly_maintenance_start_time=weekly_maintenance_start_time,
                automatic_backup_retention_days=backups,
            ),
            tags=[CfnTag(key="Name", value=self._unique_name())],
        )
        keep_forever(self._resource)
        # The implicit dependency is on the groups only; FSx checks the rules.
        if self.security_group_rules is not None:
            self._resource.node.add_dependency(self.security_group_rules)
        if own is not None:
            self._resource.node.add_dependency(own)
        if self.log_group is not None:
            self._resource.node.add_dependency(self.log_group)

        self.file_system_id: str = self._resource.ref
        self.dns_name: str = self._resource.attr_dns_name
        self.mount_name: str = self._resource.attr_lustre_mount_name
        self.resource_arn: str = self._resource.attr_resource_arn

    @property
    def resource(self) -> fsx.CfnFileSystem:
        """The L1 resource."""
        return self._resource

    @property
    def lacks(self) -> tuple[str, ...]:
        """What this file system cannot do that PERSISTENT_2 on SSD can, in words."""
        return legality.lacks(self.spec)

    @property
    def is_gated(self) -> bool:
        """Whether a `FinalExport` guards it: then it takes no further links."""
        return self._gated

    def put_behind_gate(self, *, keeper: IDependable, tags: dict[str, str]) -> None:
        """Leave the deletion of file system and links to a gate, a failed creation's too.

        Parameters
        ----------
        keeper
            What removes a file system that a failed creation leaves; the file system is made after it.
        tags
            Tags by which the gate knows file system and links as its own.
        """
        self._gated = True
        guarded: list[fsx.CfnFileSystem | fsx.CfnDataRepositoryAssociation] = [self._resource]
        guarded += [link.resource for link in self.links]
        for resource in guarded:
            for key, value in tags.items():
                resource.tags.set_tag(key, value)
            # With RetainExceptOnCreate an update that is rolled back would delete what the gate has refused to.
            resource.cfn_options.deletion_policy = CfnDeletionPolicy.RETAIN
        self._resource.node.add_dependency(keeper)

    @property
    def network(self) -> list[IDependable]:
        """What the file system's network interfaces sit in: none of it can go before the file system."""
        rules = [] if self.security_group_rules is None else [self.security_group_rules]
        return [self.subnet, self.security_group, self.client_security_group, *rules]

    def _make_security_group(self, id: str, purpose: str, identity: str, *, suffix: str) -> ec2.SecurityGroup:
        """Make a group; with `identity` one that cannot be replaced."""
        return ec2.SecurityGroup(
            self,
            id,
            vpc=self.vpc,
            allow_all_outbound=False,
            security_group_name=f"{self._unique_name()}{suffix}" if identity else None,
            description=f"{purpose} ({identity})" if identity else purpose,
        )

    def _l2_security_group(self) -> ec2.SecurityGroup:
        """Make the group as `fsx.LustreFileSystem` makes it, in the same place of the tree."""
        group = ec2.SecurityGroup(self, "FsxLustreSecurityGroup", vpc=self.vpc)
        first, last = catalog.lustre.ports()[0][0], catalog.lustre.ports()[-1][-1]
        group.connections.allow_internally(ec2.Port.tcp_range(first, last))
        return group

    def _make_rules(self, *, efa_enabled: bool) -> SecurityGroupRules:
        rules = SecurityGroupRules(
            self,
            "Rules",
            tcp_ports=None if efa_enabled else catalog.lustre.ports(),
            description=rules_description(efa_enabled=efa_enabled),
        )
        rules.allow_both_ways("Servers", group=self.security_group, peer=self.security_group)
        rules.allow_both_ways("Clients", group=self.security_group, peer=self.client_security_group)
        if efa_enabled:
            # The client group must allow all traffic to itself as well, or clients fall back to TCP without a word.
            rules.allow_both_ways("Peers", group=self.client_security_group, peer=self.client_security_group)
        return rules

    def _unique_name(self) -> str:
        """Return the stack's name and the path within it, in the characters of a log group name."""
        stack = Stack.of(self)
        path = self.node.path.removeprefix(f"{stack.node.path}/")
        return f"{stack.stack_name}/{re.sub(r'[^A-Za-z0-9/_.-]', '-', path)}"

    def _log_configuration(self, level: str) -> fsx.CfnFileSystem.LogConfigurationProperty | None:
        if level == "DISABLED" or self.log_group is None:
            return None
        destination = Stack.of(self).format_arn(
            service="logs",
            resource="log-group",
            resource_name=self.log_group.log_group_name,
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        return fsx.CfnFileSystem.LogConfigurationProperty(level=level, destination=destination)


def _require_groups(security_group: ec2.ISecurityGroup | None, *, manage: bool, keep_l2: bool) -> None:
    if keep_l2 and security_group is not None:
        raise ConstructError(
            f"keep_l2_security_group must be left out with security_group, got: {security_group.node.path}; a group"
            " that you made and gave to fsx.LustreFileSystem is given here as well"
        )
    if not manage and security_group is None:
        raise ConstructError(
            "manage_security_group_rules must be left on without security_group, got: False; nobody else could write"
            " rules for a group that is made here before the file system is"
        )


def _identity(*parts: str) -> str:
    """Describe a file system by what replaces it, as far as it is known at synth.

    What is made in the same app guards itself: no subnet replaces one of the same range, nor a key a retained one.
    """
    return ", ".join(part for part in parts if part and not is_token(part))


def _efa(enabled: bool, *, stated: bool) -> bool | None:  # noqa: FBT001 -- the property itself
    """Return EfaEnabled: types that never speak EFA do not take False either, nor does FSx on one that stands."""
    return enabled or (False if stated else None)


def _iops(iops: int | None, *, tiering: bool) -> int | None:
    """Return the metadata IOPS; Intelligent-Tiering gets the ones that every source allows."""
    return lustre_limits().tiering_metadata_iops_default if iops is None and tiering else iops


def _metadata(iops: int | None, *, tiering: bool) -> legality.MetadataConfiguration:
    provisioned = _iops(iops, tiering=tiering)
    if provisioned is None:
        return legality.MetadataConfiguration(mode="AUTOMATIC")
    return legality.MetadataConfiguration(mode="USER_PROVISIONED", iops=known(provisioned))


def _read_cache(size_gib: int | None) -> legality.ReadCache:
    if size_gib is None:
        return legality.ReadCache(sizing_mode="PROPORTIONAL_TO_THROUGHPUT_CAPACITY")
    if size_gib == 0:
        return legality.ReadCache(sizing_mode="NO_CACHE")
    return legality.ReadCache(sizing_mode="USER_PROVISIONED", size_gib=known(size_gib))


def _group_name(group: logs.ILogGroup | None) -> str | legality.Unknown | None:
    """Return the name of the caller's log group; of one made in this app the name that it was given."""
    if group is None or not is_token(group.log_group_name):
        return None if group is None else group.log_group_name
    made = group.node.default_child
    if not isinstance(made, logs.CfnLogGroup):
        return legality.UNKNOWN
    name = Stack.of(made).resolve(made.log_group_name)
    if name is None:
        # CloudFormation makes a name of the stack's then, which never begins with /aws/fsx.
        return "a log group without a name"
    return name if isinstance(name, str) else legality.UNKNOWN
