"""An FSx for Lustre file system with the security groups that its clients need."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aws_cdk import ArnFormat, CfnDeletionPolicy, CfnTag, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from training_storage.acknowledgements import acknowledge_wildcards
from training_storage.planning import catalog
from training_storage.security_group_rules import SecurityGroupRules
from training_storage.validation import ConstructError, is_token, require_integer, require_match, require_one_of

if TYPE_CHECKING:
    from aws_cdk import aws_kms as kms

    from training_storage.data_repository_association import DataRepositoryAssociation

__all__ = ["LustreFileSystem"]

_LOG_GROUP_PREFIX = "/aws/fsx/"  # FSx accepts no other destination (CreateFileSystem, LustreLogCreateConfiguration).
_LOG_LEVELS = ("DISABLED", "WARN_ONLY", "ERROR_ONLY", "WARN_ERROR")
_COMPRESSIONS = ("LZ4", "NONE")
_VERSIONS = ("2.15",)  # FSx: "A FileSystemTypeVersion of '2.15' is required" for a metadata configuration.
_DEPLOYMENT_TYPE = "PERSISTENT_2"


class LustreFileSystem(Construct):
    """A PERSISTENT_2 SSD file system in one subnet, with metadata configuration, logs and encryption.

    It owns two security groups: its own, and a client group that every node attaches. The rules between them go by
    group id both ways, and the file system waits for every one of them. CloudFormation never deletes the file system
    or its links once they stand (docs/decisions/0002): both are retained, whatever becomes of the stack.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    vpc, subnet
        The network. A Lustre file system lives in exactly one subnet; clients should be in the same zone.
    storage_capacity_gib
        1,200 or a multiple of 2,400 GiB; with EFA a multiple of the step of the throughput tier.
    per_unit_storage_throughput
        MB/s per TiB: 125, 250, 500 or 1000.
    metadata_iops
        Provisioned metadata IOPS; None lets FSx choose by capacity (AUTOMATIC). The metadata configuration is always
        written, because it cannot be added to a file system that was made without one.
    efa_enabled
        Elastic Fabric Adapter and GPUDirect Storage; only at creation.
    data_compression
        LZ4 or NONE.
    encryption_key
        KMS key; the AWS-managed one if none is given. It must outlive the file system.
    log_level
        DISABLED, WARN_ONLY, ERROR_ONLY or WARN_ERROR.
    log_group
        Destination of the logs, named /aws/fsx/…; one is made if none is given.
    weekly_maintenance_start_time
        d:HH:MM in UTC with d from 1 (Monday) to 7; FSx chooses if none is given.
    file_system_type_version
        Lustre version; 2.15 is the only one with metadata configuration and EFA.

    Attributes
    ----------
    security_group, client_security_group
        The file system's group, and the group that clients attach.
    file_system_id, dns_name, mount_name, resource_arn
        Known at deployment.
    links
        The data repository associations made so far.

    Raises
    ------
    ConstructError
        For a configuration that FSx would refuse.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc,
        subnet: ec2.ISubnet,
        storage_capacity_gib: int,
        per_unit_storage_throughput: int,
        metadata_iops: int | None = None,
        efa_enabled: bool = False,
        data_compression: str = "LZ4",
        encryption_key: kms.IKey | None = None,
        log_level: str = "WARN_ERROR",
        log_group: logs.ILogGroup | None = None,
        weekly_maintenance_start_time: str | None = None,
        file_system_type_version: str = "2.15",
    ) -> None:
        _require_legal_size(storage_capacity_gib, per_unit_storage_throughput, efa_enabled=efa_enabled)
        _require_legal_metadata(metadata_iops)
        require_one_of(data_compression, _COMPRESSIONS, what="data_compression")
        require_one_of(log_level, _LOG_LEVELS, what="log_level")
        require_one_of(
            file_system_type_version,
            _VERSIONS,
            what="file_system_type_version",
            way_out="older versions have no metadata configuration and no EFA",
        )
        if weekly_maintenance_start_time is not None:
            require_match(
                weekly_maintenance_start_time,
                r"[1-7]:([01]\d|2[0-3]):[0-5]\d",
                what="weekly_maintenance_start_time",
                allowed="d:HH:MM with d from 1 (Monday) to 7, such as '7:03:00'",
            )
        if log_group is not None and not is_token(log_group.log_group_name):
            require_match(
                log_group.log_group_name,
                f"{_LOG_GROUP_PREFIX}.+",
                what="log_group",
                allowed=f"a log group whose name begins with {_LOG_GROUP_PREFIX}",
            )
        super().__init__(scope, id)
        self.links: list[DataRepositoryAssociation] = []

        self.security_group = ec2.SecurityGroup(
            self, "SecurityGroup", vpc=vpc, allow_all_outbound=False, description="FSx for Lustre file servers"
        )
        self.client_security_group = ec2.SecurityGroup(
            self, "ClientSecurityGroup", vpc=vpc, allow_all_outbound=False, description="FSx for Lustre clients"
        )
        self._rules = SecurityGroupRules(
            self,
            "Rules",
            tcp_ports=None if efa_enabled else catalog.lustre.ports(),
            description="FSx for Lustre over EFA" if efa_enabled else "FSx for Lustre over TCP",
        )
        self._rules.allow_both_ways("Servers", group=self.security_group, peer=self.security_group)
        self._rules.allow_both_ways("Clients", group=self.security_group, peer=self.client_security_group)
        if efa_enabled:
            # The client group must allow all traffic to itself as well, or clients fall back to TCP without a word.
            self._rules.allow_both_ways("Peers", group=self.client_security_group, peer=self.client_security_group)

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
            storage_type="SSD",
            storage_capacity=storage_capacity_gib,
            subnet_ids=[subnet.subnet_id],
            security_group_ids=[self.security_group.security_group_id],
            kms_key_id=encryption_key.key_arn if encryption_key else None,
            lustre_configuration=fsx.CfnFileSystem.LustreConfigurationProperty(
                deployment_type=_DEPLOYMENT_TYPE,
                per_unit_storage_throughput=per_unit_storage_throughput,
                data_compression_type=data_compression,
                efa_enabled=efa_enabled,
                metadata_configuration=_metadata_configuration(metadata_iops),
                log_configuration=self._log_configuration(log_level),
                weekly_maintenance_start_time=weekly_maintenance_start_time,
                # Linked file systems have no backups: their durable copy is the lake.
                automatic_backup_retention_days=0,
            ),
            tags=[CfnTag(key="Name", value=self._unique_name())],
        )
        keep_forever(self._resource)
        # The implicit dependency is on the groups only; FSx checks the rules.
        self._resource.node.add_dependency(self._rules)
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

    def mount_command(self, directory: str = "/fsx") -> str:
        """Return the command that mounts the file system on a client (options: FSx guide, mounting from EC2)."""
        return f"sudo mount -t lustre -o relatime,flock {self.dns_name}@tcp:/{self.mount_name} {directory}"

    def import_metadata_command(self, s3_uri: str) -> str:
        """Return the command that makes objects under a linked `s3_uri` visible that were there before the link.

        Automatic import brings what changes from now on. A task brings the rest: it is no part of the creation, because
        millions of objects would outlast it.
        """
        return (
            f"aws fsx create-data-repository-task --region {Stack.of(self).region}"
            f" --file-system-id {self.file_system_id} --type IMPORT_METADATA_FROM_REPOSITORY"
            f" --paths {s3_uri} --report Enabled=false"
        )

    def delete_command(self) -> str:
        """Return the command that deletes the file system and its links; what was not exported is lost."""
        return f"aws fsx delete-file-system --region {Stack.of(self).region} --file-system-id {self.file_system_id}"

    def allow_from(self, security_group: ec2.ISecurityGroup) -> None:
        """Let clients in that carry `security_group` instead of the client group."""
        self._rules.allow_both_ways(
            f"From{security_group.node.addr[-8:]}", group=self.security_group, peer=security_group
        )

    def grant_describe(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let nodes read the description of the file system: without it the client setup turns EFA off silently.

        The action takes no resource (Service Authorization Reference, Amazon FSx), so this grants it on "*".
        """
        return self._grant_on_all(grantee, ["fsx:DescribeFileSystems"])

    def grant_data_repository_tasks(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let `grantee` start, watch and cancel the import, export and release tasks of this file system.

        The two Describe actions take no resource (Service Authorization Reference, Amazon FSx).
        """
        tasks = self._arn("task", "*")
        changing = iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["fsx:CancelDataRepositoryTask", "fsx:CreateDataRepositoryTask"],
            resource_arns=[self.resource_arn, tasks],
        )
        acknowledge_wildcards(grantee, resources=[tasks], reason="A task gets its id when it starts.")
        reading = ["fsx:DescribeDataRepositoryAssociations", "fsx:DescribeDataRepositoryTasks"]
        return changing.combine(self._grant_on_all(grantee, reading))

    @staticmethod
    def _grant_on_all(grantee: iam.IGrantable, actions: list[str]) -> iam.Grant:
        acknowledge_wildcards(grantee, resources=["*"], reason="The Describe actions of FSx take no resource.")
        return iam.Grant.add_to_principal(grantee=grantee, actions=actions, resource_arns=["*"])

    def _unique_name(self) -> str:
        """Return the stack's name and the path within it, in the characters of a log group name."""
        stack = Stack.of(self)
        path = self.node.path.removeprefix(f"{stack.node.path}/")
        return f"{stack.stack_name}/{re.sub(r'[^A-Za-z0-9/_.-]', '-', path)}"

    def _arn(self, resource: str, name: str) -> str:
        return Stack.of(self).format_arn(service="fsx", resource=resource, resource_name=name)

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


def keep_forever(resource: fsx.CfnFileSystem | fsx.CfnDataRepositoryAssociation) -> None:
    """Keep a file system or a link through every update and deletion of the stack; only a failed creation removes it.

    CloudFormation deletes the dependencies of a resource whose own deletion failed during an update and calls the
    update a success, so it must never be the one that deletes unexported data.
    """
    resource.cfn_options.deletion_policy = CfnDeletionPolicy.RETAIN_EXCEPT_ON_CREATE
    resource.cfn_options.update_replace_policy = CfnDeletionPolicy.RETAIN


def _metadata_configuration(iops: int | None) -> fsx.CfnFileSystem.MetadataConfigurationProperty:
    if iops is None:
        return fsx.CfnFileSystem.MetadataConfigurationProperty(mode="AUTOMATIC")
    return fsx.CfnFileSystem.MetadataConfigurationProperty(mode="USER_PROVISIONED", iops=iops)


def _require_legal_metadata(iops: int | None) -> None:
    if iops is not None:
        require_one_of(iops, catalog.lustre.metadata_iops_steps(), what="metadata_iops", way_out="None lets FSx choose")


def _require_legal_size(capacity_gib: int, throughput: int, *, efa_enabled: bool) -> None:
    kind = catalog.lustre.deployment_types()[_DEPLOYMENT_TYPE]
    require_one_of(throughput, kind.throughputs, what="per_unit_storage_throughput (MB/s per TiB)")
    if is_token(capacity_gib):
        return
    require_integer(capacity_gib, what="storage_capacity_gib", minimum=1)
    if is_token(throughput) or kind.is_legal(capacity_gib=capacity_gib, per_unit=throughput, efa=efa_enabled):
        return
    allowed = (
        f"a multiple of {kind.throughputs[throughput].efa_increment_gib} with EFA at {throughput} MB/s per TiB"
        if efa_enabled
        else f"{kind.capacity_minimum_gib} or a multiple of {kind.capacity_increment_gib}"
    )
    following = kind.round_up_gib(capacity_gib=capacity_gib, per_unit=throughput, efa=efa_enabled)
    raise ConstructError(f"storage_capacity_gib must be {allowed}, got: {capacity_gib}; the next is {following}")
