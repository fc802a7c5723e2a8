"""Contracts of jobs, as tests need them: with the names that a deployment would give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from training_storage.planning import TrainingJob, plan_storage
from training_storage.planning.contract import DeployedFileSystem, DeployedValues, storage_contract

if TYPE_CHECKING:
    from training_storage.planning.plan import StoragePlan

BUCKET = "training-data-lake-111122223333-us-east-1"
EXPRESS = "hot-1a2b3c--use1-az4--x-s3"
SYSTEM = DeployedFileSystem(
    file_system_id="fs-0123456789abcdef0",
    dns_name="fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com",
    mount_name="abcdefgh",
)


def deployed(plan: StoragePlan) -> DeployedValues:
    return DeployedValues(
        bucket=BUCKET,
        kms_key_arn="arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab",
        file_system=SYSTEM if plan.fsx_lustre else None,
        directory_bucket=EXPRESS if plan.s3_express else None,
    )


def plan(**fields: Any) -> StoragePlan:
    return plan_storage(TrainingJob(**fields))


def contract(**fields: Any) -> dict[str, Any]:
    made = plan(**fields)
    return storage_contract(made, deployed=deployed(made), engine="pcs")


def of_job(job: dict[str, str]) -> dict[str, Any]:
    made = plan_storage(TrainingJob.from_strings(job))
    return storage_contract(made, deployed=deployed(made), engine="pcs")
