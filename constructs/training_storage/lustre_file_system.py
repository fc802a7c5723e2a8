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
from training_storage.operations.lustre_state import JOB_TAG
from training_storage.planning import catalog, legality
from training_storage.planning.catalog.limits import lustre_limits
from training_storage.security_group_rules import SecurityGroupRules
from training_storage.validation import is_token, known, refuse, region_of, require_one_of, say_unchecked

if TYPE_CHECKING:
    from aws_cdk import aws_kms as kms
    from constructs import IDependable

    from training_storage.data_repository_association import DataRepositoryAssociation

__all__ = ["LustreFileSystem"]

_LOG_GROUP_PREFIX = "/aws/fsx/"  # FSx accepts no other destination (CreateFileSystem, LustreLogCreateConfiguration).
_TIERING = "INTELLIGENT_TIERING"
_SERVERS = "FSx for Lustre file servers"


class LustreFileSystem(Construct):
    """A file system in one subnet; by default PERSISTENT_2 on SSD with metadata configuration, logs and encryption.

    It owns two security groups: its own, and a client group that every node attaches. The rules between them go by
    group id both ways, and the file system waits for every one of them. CloudFormation never deletes the file system
    or its links once they stand (docs/decisions/0002): both are retained, whatever becomes of the stack. `FinalExport`
    deletes them, after their data is in the lake.

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
        linked to the lake and takes `throughput_capacity` instead of capacity and throughput.
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
        Provisioned metadata IOPS; None lets FSx choose by capacity (AUTOMATIC), on INTELLIGENT_TIERING 6,000. The
        metadata configuration is always written for PERSISTENT_2, because it cannot be added to a file system that was
        made without one.
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
    file_system_type_version
        Lustre version; 2.15 is the only one with metadata configuration and EFA. China has 2.12 at most.
    replacement_protection
        Let an update that would replace the file system fail and roll back, instead of leaving the old one behind and
        mounting an empty new one (docs/decisions/0008). It gives the servers' security group a fixed name.

    Attributes
    ----------
    security_group, client_security_group
        The file system's group, and the group that clients attach.
    file_system_id, dns_name, mount_name, resource_arn
        Known at deployment.
    links
        The data repository associations made so far.
    vpc, subnet
        The network.

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
        deployment_type: str = "PERSISTENT_2",
        storage_type: str = "SSD",
        storage_capacity_gib: int | None = None,
        per_unit_storage_throughput: int | None = None,
        throughput_capacity: int | None = None,
        small_tiering_throughput: bool = False,
        read_cache_gib: int | None = None,
        drive_cache_type: str | None = None,
        metadata_iops: int | None = None,
        efa_enabled: bool = False,
        data_compression: str = "LZ4",
        encryption_key: kms.IKey | None = None,
        log_level: str = "WARN_ERROR",
        log_group: logs.ILogGroup | None = None,
        weekly_maintenance_start_time: str | None = None,
        file_system_type_version: str = "2.15",
        replacement_protection: bool = True,
    ) -> None:
        require_one_of(
            deployment_type,
            ("PERSISTENT_2", "PERSISTENT_1", "SCRATCH_2"),
            what="deployment_type",
            way_out="SCRATCH_1 cannot be linked and is not made here",
        )
        second = deployment_type == "PERSISTENT_2"
        tiering = storage_type == _TIERING
        metadata = _metadata(metadata_iops, tiering=tiering) if second or metadata_iops is not None else None
        cache = _read_cache(read_cache_gib) if tiering or read_cache_gib is not None else None
        spec = legality.FileSystem(
            deployment_type=known(deployment_type),
            storage_type=known(storage_type),
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
            subnets=1,
            region=region_of(scope),
        )
        refuse(legality.check_file_system(spec))
        super().__init__(scope, id)
        self.links: list[DataRepositoryAssociation] = []
        self._gated = False
        self.vpc: ec2.IVpc = vpc
        self.subnet: ec2.ISubnet = subnet
        #: The file system as the rules see it; links are checked against it.
        self.spec: legality.FileSystem = spec
        say_unchecked(self, spec.unknown_fields())

        self.security_group = ec2.SecurityGroup(
            self,
            "SecurityGroup",
            vpc=vpc,
            allow_all_outbound=False,
            # CloudFormation refuses to replace a resource that has a name of its own, and a group's description cannot
            # change without replacement. So the description holds what replaces the file system: the group is updated
            # before the file system, and a change stops there.
            security_group_name=self._unique_name() if replacement_protection else None,
            description=_servers_description(
                deployment_type,
                f"Lustre {file_system_type_version}",
                f"{per_unit_storage_throughput or 'default'} MB/s per TiB",
                *([f"drive cache {drive_cache_type}"] if drive_cache_type else []),
                subnet.subnet_id,
                encryption_key.key_arn if encryption_key else "aws/fsx",
            )
            if replacement_protection
            else _SERVERS,
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
                # Types that never speak EFA do not take the property either.
                efa_enabled=efa_enabled if second else None,
                metadata_configuration=None
                if metadata is None
                else fsx.CfnFileSystem.MetadataConfigurationProperty(
                    mode=str(metadata.mode), iops=_iops(metadata_iops, tiering=tiering)
                ),
                log_configuration=self._log_configuration(log_level),
                weekly_maintenance_start_time=weekly_maintenance_start_time,
                # Linked file systems have no backups: their durable copy is the lake. Scratch has none at all.
                automatic_backup_retention_days=None if deployment_type == "SCRATCH_2" else 0,
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
        return [self.subnet, self.security_group, self.client_security_group, self._rules]

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

    def allow_from(self, security_group: ec2.ISecurityGroup) -> None:
        """Let clients in that carry `security_group` instead of the client group.

        The rules stand in this stack, so the group must not be in a stack that depends on this one: attach
        `client_security_group` there instead.
        """
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

    def grant_tasks_of_job(self, grantee: iam.IGrantable, *, job_name: str) -> iam.Grant:
        """Let `grantee` start and watch tasks that carry the tag of its job, as archiving from a node does.

        It may cancel none, and not tag what others started: `fsx:TagResource` is bound to the tag that it sets.
        """
        tasks = self._arn("task", "*")
        starting = iam.Grant.add_to_principal(
            grantee=grantee, actions=["fsx:CreateDataRepositoryTask"], resource_arns=[self.resource_arn, tasks]
        )
        tagging = iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["fsx:TagResource"],
            resource_arns=[tasks],
            conditions={
                "StringEquals": {f"aws:RequestTag/{JOB_TAG}": job_name},
                "ForAllValues:StringEquals": {"aws:TagKeys": [JOB_TAG]},
            },
        )
        acknowledge_wildcards(grantee, resources=[tasks], reason="A task gets its id when it starts.")
        reading = ["fsx:DescribeDataRepositoryAssociations", "fsx:DescribeDataRepositoryTasks"]
        return starting.combine(tagging).combine(self._grant_on_all(grantee, reading))

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


def _servers_description(*identity: str) -> str:
    """Describe the servers by what replaces their file system, as far as it is known at synth.

    What is made in the same app guards itself: no subnet replaces one of the same range, nor a key a retained one.
    """
    return f"{_SERVERS} ({', '.join(part for part in identity if not is_token(part))})"


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
