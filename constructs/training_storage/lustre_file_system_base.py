"""What links, clients and gates need of a Lustre file system, and what it grants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from training_storage.acknowledgements import acknowledge_wildcards
from training_storage.identity_grants import grant_to
from training_storage.operations.lustre_state import JOB_TAG
from training_storage.validation import ConstructError

if TYPE_CHECKING:
    from aws_cdk import aws_iam as iam

    from training_storage.data_repository_association import DataRepositoryAssociation
    from training_storage.planning import legality
    from training_storage.security_group_rules import SecurityGroupRules

__all__ = ["LustreFileSystemBase"]


class LustreFileSystemBase(Construct):
    """A Lustre file system, whether this app makes it or somebody else did.

    Attributes
    ----------
    file_system_id, dns_name, mount_name, resource_arn
        What mounts and tasks need.
    security_group, client_security_group
        The group of the servers, and the group that clients attach.
    security_group_rules
        The rules between them that are made here; None where they are somebody else's.
    links
        The data repository associations that were made on it so far.
    spec
        The file system as the rules see it; links are checked against it.
    """

    file_system_id: str
    dns_name: str
    mount_name: str
    resource_arn: str
    security_group: ec2.ISecurityGroup
    client_security_group: ec2.ISecurityGroup
    security_group_rules: SecurityGroupRules | None
    links: list[DataRepositoryAssociation]
    spec: legality.FileSystem

    @property
    def is_gated(self) -> bool:
        """Whether a `FinalExport` guards it: then it takes no further links."""
        return False

    @property
    def is_imported(self) -> bool:
        """Whether somebody else made it, so that links may stand on it that nothing is known of here."""
        return False

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

    def allow_from(self, other: ec2.IConnectable) -> None:
        """Let clients in that carry groups of their own instead of the client group.

        The rules stand in this stack, so the groups must not be in a stack that depends on this one: attach
        `client_security_group` there instead. Allowing the same group again changes nothing.

        Parameters
        ----------
        other
            A security group, or what has some: an instance, an Auto Scaling group, a service.

        Raises
        ------
        ConstructError
            For an address range, or where the rules of the groups are somebody else's.
        """
        servers, rules = self.security_group, self.security_group_rules
        if rules is None:
            raise ConstructError(
                f"manage_security_group_rules must be on to let clients in, got: False for {self.node.path}; its rules"
                " are somebody else's, who must let the clients in"
            )
        groups = other.connections.security_groups
        if not groups:
            raise ConstructError(
                "other must have a security group, got: none; rules that name an address range do not count for EFA,"
                " so Lustre clients are let in by group"
            )
        for group in groups:
            rules.allow_both_ways(f"From{group.node.addr[-8:]}", group=servers, peer=group)

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
        changing = grant_to(
            grantee,
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
        starting = grant_to(grantee, actions=["fsx:CreateDataRepositoryTask"], resource_arns=[self.resource_arn, tasks])
        tagging = grant_to(
            grantee,
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
        return grant_to(grantee, actions=actions, resource_arns=["*"])

    def _arn(self, resource: str, name: str) -> str:
        return Stack.of(self).format_arn(service="fsx", resource=resource, resource_name=name)
