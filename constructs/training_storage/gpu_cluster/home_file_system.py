"""A shared /home: where researchers keep programs and notes, whatever storage the job has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import CfnDeletionPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_iam as iam
from constructs import Construct

from training_storage.validation import require_match

if TYPE_CHECKING:
    from aws_cdk import aws_kms as kms

__all__ = ["HomeFileSystem"]

_NFS = 2049
_PATH = "/home"
# A mount target's DNS name is known to the network up to 90 seconds after it stands (EFS user guide, mount helper).
_ATTEMPTS, _PAUSE_SECONDS = 30, 10


class HomeFileSystem(Construct):
    """An EFS file system of no fixed size, open to the cluster alone, encrypted, backed up and retained.

    It is data: files of researchers that nothing else copies. CloudFormation never deletes it, whatever becomes of the
    stack; only a creation that fails takes it away again. Its mount target goes with the stack, so that the network can
    go; a later cluster gets the files back by the id of the file system.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    vpc, subnet
        The network of the cluster; one mount target.
    client_security_group
        The group of the nodes.
    name
        Its name in the console.
    encryption_key
        KMS key; the AWS-managed one if none is given. It must outlive the file system.
    file_system_id
        One that an earlier cluster left; a new one if none is given. It must have no mount target in another VPC.

    Attributes
    ----------
    file_system_id
        Known at deployment.
    resource, mount_target
        The file system, None where one is given by its id, and its mount target in the subnet.
    security_group
        The mount target's.

    Raises
    ------
    ConstructError
        For an id that is none.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc,
        subnet: ec2.ISubnet,
        client_security_group: ec2.ISecurityGroup,
        name: str,
        encryption_key: kms.IKey | None = None,
        file_system_id: str | None = None,
    ) -> None:
        if file_system_id is not None:
            require_match(
                file_system_id,
                r"fs-[0-9a-f]{8,17}",
                what="home_file_system_id",
                allowed="the id of an EFS file system, such as fs-0123456789abcdef0",
            )
        super().__init__(scope, id)
        self.resource: efs.CfnFileSystem | None = None
        if file_system_id is None:
            self.resource = self._make_file_system(name, encryption_key)
            file_system_id = self.resource.ref
        self.file_system_id: str = file_system_id
        self.security_group = ec2.SecurityGroup(
            self, "SecurityGroup", vpc=vpc, allow_all_outbound=False, description="Home directories of training nodes"
        )
        self.security_group.add_ingress_rule(client_security_group, ec2.Port.tcp(_NFS), "NFS from training nodes")
        self.mount_target = efs.CfnMountTarget(
            self,
            "MountTarget",
            file_system_id=self.file_system_id,
            subnet_id=subnet.subnet_id,
            security_groups=[self.security_group.security_group_id],
        )

    def _make_file_system(self, name: str, encryption_key: kms.IKey | None) -> efs.CfnFileSystem:
        properties = efs.CfnFileSystem
        resource = properties(
            self,
            "Resource",
            encrypted=True,
            kms_key_id=encryption_key.key_arn if encryption_key else None,
            performance_mode="generalPurpose",
            # No throughput to choose, and none to pay while nobody works.
            throughput_mode="elastic",
            lifecycle_policies=[
                properties.LifecyclePolicyProperty(transition_to_ia="AFTER_30_DAYS"),
                properties.LifecyclePolicyProperty(transition_to_primary_storage_class="AFTER_1_ACCESS"),
            ],
            backup_policy=properties.BackupPolicyProperty(status="ENABLED"),
            file_system_policy=_policy(),
            file_system_tags=[properties.ElasticFileSystemTagProperty(key="Name", value=name)],
        )
        resource.cfn_options.deletion_policy = CfnDeletionPolicy.RETAIN_EXCEPT_ON_CREATE
        resource.cfn_options.update_replace_policy = CfnDeletionPolicy.RETAIN
        return resource

    def mount_commands(self, *, seed: bool) -> list[str]:
        """Return shell commands that mount it on /home, now and at every boot; they fail if it cannot be mounted.

        The EFS mount helper encrypts the traffic; AWS PCS's images bring it.

        Parameters
        ----------
        seed
            Take over the home directories of the image first, where the file system does not have them yet. For one
            node only, or two would write at once.
        """
        device = f"{self.file_system_id}:/"
        return [
            "set -euo pipefail",
            f"grep -q ' {_PATH} efs ' /etc/fstab || echo '{device} {_PATH} efs _netdev,tls 0 0' >> /etc/fstab",
            "mount_when_reachable() {",
            f"  for _ in $(seq {_ATTEMPTS}); do",
            '    if mountpoint -q "$1" || mount -t efs -o tls "$2" "$1"; then return 0; fi',
            f"    sleep {_PAUSE_SECONDS}",
            "  done",
            f'  echo "training-storage: cannot mount $2 on $1 after {_ATTEMPTS} attempts" >&2',
            "  return 1",
            "}",
            *(_seed_commands(device) if seed else []),
            f"mount_when_reachable {_PATH} {device}",
        ]


def _seed_commands(device: str) -> list[str]:
    new = "/run/training-storage-home"
    return [
        f"if ! mountpoint -q {_PATH}; then",
        f"  mkdir -p {new}",
        f"  mount_when_reachable {new} {device}",
        f"  for old in {_PATH}/*/; do",
        '    name="$(basename "$old")"',
        f'    if [ -d "$old" ] && [ ! -e "{new}/$name" ]; then',
        # Under another name until it is whole: a boot that breaks off leaves no half of a home behind.
        f'      rm -rf "{new}/.$name.part"',
        f'      cp -a "$old" "{new}/.$name.part"',
        f'      mv "{new}/.$name.part" "{new}/$name"',
        "    fi",
        "  done",
        f"  umount {new}",
        "fi",
    ]


def _policy() -> iam.PolicyDocument:
    """Let in who comes through the mount target, which the security group guards, and only over TLS."""
    return iam.PolicyDocument(
        statements=[
            iam.PolicyStatement(
                sid="ThroughMountTargets",
                principals=[iam.AnyPrincipal()],
                actions=[
                    "elasticfilesystem:ClientMount",
                    "elasticfilesystem:ClientRootAccess",
                    "elasticfilesystem:ClientWrite",
                ],
                conditions={"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}},
            ),
            iam.PolicyStatement(
                sid="OnlyOverTls",
                effect=iam.Effect.DENY,
                principals=[iam.AnyPrincipal()],
                actions=["*"],
                conditions={"Bool": {"aws:SecureTransport": "false"}},
            ),
        ]
    )
