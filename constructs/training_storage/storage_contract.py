"""The parameter that tells nodes and training code where a job's storage is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from training_storage.planning.contract import (
    DeployedFileSystem,
    DeployedValues,
    Endpoint,
    longest_values,
    parameter_name,
    parameter_tier,
    storage_contract,
)
from training_storage.planning.job import UNNAMED
from training_storage.validation import claim_name, require_kinds

if TYPE_CHECKING:
    from training_storage.data_lake import DataLakeBase
    from training_storage.directory_bucket import DirectoryBucket
    from training_storage.lustre_file_system import LustreFileSystem
    from training_storage.planning import StoragePlan

__all__ = ["StorageContractParameter"]


class StorageContractParameter(Construct):
    """The storage contract of one job (docs/contract.md) in Parameter Store, under a name that is known beforehand.

    It is no secret, so it is a plain parameter: names, paths, addresses and figures. Whoever reads it needs
    `grant_read`, and still needs the grants of the storage itself.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    plan
        What was planned; the deployed constructs must be those of its tiers.
    data_lake
        The lake.
    file_system, directory_bucket
        The hot tiers that the plan has.
    engine
        What starts the nodes, such as ``pcs``.
    endpoint
        Where S3 requests go; AWS by default.

    Attributes
    ----------
    parameter_name
        ``/training-storage/<job>/contract``: plain text, so that user data and policies may name it without waiting for
        it. One for each job of an account and Region.
    document
        The contract as JSON values, with tokens in place of what is known at deployment only.
    text
        The contract as JSON text, likewise.
    parameter
        The parameter.

    Raises
    ------
    InvalidPlanError
        If the constructs are not those of the plan's tiers, the plan has no zone, or the contract fits no parameter.
    ConstructError
        For a job whose name another job of the app has, in the same account and Region.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        plan: StoragePlan,
        data_lake: DataLakeBase,
        engine: str,
        file_system: LustreFileSystem | None = None,
        directory_bucket: DirectoryBucket | None = None,
        endpoint: Endpoint | None = None,
    ) -> None:
        require_kinds(
            needed=("data_lake",), data_lake=data_lake, file_system=file_system, directory_bucket=directory_bucket
        )
        deployed = DeployedValues(
            bucket=data_lake.bucket.bucket_name,
            kms_key_arn=data_lake.encryption_key.key_arn,
            file_system=DeployedFileSystem(
                file_system_id=file_system.file_system_id,
                dns_name=file_system.dns_name,
                mount_name=file_system.mount_name,
            )
            if file_system
            else None,
            directory_bucket=directory_bucket.bucket_name if directory_bucket else None,
        )
        document = storage_contract(plan, deployed=deployed, engine=engine, endpoint=endpoint)
        # What is deployed may have any name of its kind: the tier must not depend on luck, because an advanced
        # parameter never becomes a standard one again.
        longest = storage_contract(plan, deployed=longest_values(plan), engine=engine, endpoint=endpoint)
        tier = parameter_tier(len(_json(longest)))
        job_name = plan.job.name or UNNAMED
        claim_name(
            scope,
            id,
            name=job_name,
            what="name of a job",
            way_out="its contract's parameter is named after the job: give each job a name of its own",
        )

        super().__init__(scope, id)
        self.document: dict[str, Any] = document
        # Not Stack.to_json_string: it drops every key whose value is null. The tokens are names without characters
        # that JSON escapes.
        self.text: str = _json(document)
        self.parameter_name: str = parameter_name(job_name)
        self.parameter: ssm.CfnParameter = ssm.CfnParameter(
            self,
            "Resource",
            name=self.parameter_name,
            type="String",
            tier=tier,
            value=self.text,
            description="Storage contract: where the nodes of the job find data, checkpoints and scratch space",
        )

    @property
    def parameter_arn(self) -> str:
        """ARN of the parameter, made of its name, so that a role's policy does not wait for the storage."""
        return Stack.of(self).format_arn(
            service="ssm", resource="parameter", resource_name=self.parameter_name.removeprefix("/")
        )

    def grant_read(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let `grantee` read this parameter and no other."""
        return iam.Grant.add_to_principal(
            grantee=grantee, actions=["ssm:GetParameter"], resource_arns=[self.parameter_arn]
        )


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"), allow_nan=False)
