"""A SageMaker AI training job on the contract's storage, checked against the API's own model in botocore."""

from __future__ import annotations

from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from tests.contracts import BUCKET, EXPRESS, SYSTEM, contract
from training_storage.planning.errors import InvalidJobError
from training_storage.training import StorageContract
from training_storage.training.recipes.sagemaker import container_contract, sagemaker_inputs

VPC: dict[str, Any] = {
    "subnet_ids": ["subnet-0123456789abcdef0"],
    "security_group_ids": ["sg-0123456789abcdef0"],
}


def of(**job: Any) -> StorageContract:
    return StorageContract.from_dict(contract(**job))


ON_S3, ON_LUSTRE, ON_EXPRESS = {"instances": 8}, {"instances": 64}, {"instances": 1200, "interface": "object"}


def channels(request: dict[str, Any]) -> dict[str, Any]:
    return {channel["ChannelName"]: channel for channel in request["InputDataConfig"]}


def errors_of(parts: dict[str, Any]) -> str:
    """Return what the API's model says of a whole request with these parts."""
    model = botocore.session.get_session().get_service_model("sagemaker").operation_model("CreateTrainingJob")
    request = {
        "TrainingJobName": "job",
        "RoleArn": "arn:aws:iam::111122223333:role/training",
        "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/models/"},
        **parts,
    }
    return str(ParamValidator().validate(request, model.input_shape).generate_report())


@pytest.mark.parametrize("asked", [ON_S3, ON_LUSTRE, ON_EXPRESS], ids=["s3", "lustre", "s3-express"])
@pytest.mark.parametrize("managed", [True, False])
def test_the_api_takes_every_request(asked: dict[str, Any], managed: bool) -> None:
    inputs = sagemaker_inputs(of(**asked), **VPC, channels=("datasets", "models"), managed_checkpoints=managed)
    assert errors_of(inputs) == ""
    assert ("CheckpointConfig" in inputs) == managed


def test_the_model_refuses_what_is_wrong() -> None:
    inputs = sagemaker_inputs(of(**ON_LUSTRE), **VPC)
    del inputs["InputDataConfig"][0]["DataSource"]["FileSystemDataSource"]["DirectoryPath"]
    assert "DirectoryPath" in errors_of(inputs)


def test_data_is_mounted_read_only_and_checkpoints_for_writing_below_the_mount_name() -> None:
    found = channels(sagemaker_inputs(of(**ON_LUSTRE), **VPC))
    assert found["datasets"]["DataSource"]["FileSystemDataSource"] == {
        "FileSystemId": SYSTEM.file_system_id,
        "FileSystemType": "FSxLustre",
        "FileSystemAccessMode": "ro",
        "DirectoryPath": f"/{SYSTEM.mount_name}/datasets",
    }
    checkpoints = found["checkpoints"]["DataSource"]["FileSystemDataSource"]
    assert (checkpoints["FileSystemAccessMode"], checkpoints["DirectoryPath"]) == (
        "rw",
        f"/{SYSTEM.mount_name}/checkpoints",
    )


def test_without_a_file_system_the_lake_is_streamed_whole_to_each_instance() -> None:
    found = channels(sagemaker_inputs(of(**ON_S3), **VPC))
    assert set(found) == {"datasets"}
    assert found["datasets"]["InputMode"] == "FastFile"
    assert found["datasets"]["DataSource"]["S3DataSource"] == {
        "S3DataType": "S3Prefix",
        "S3Uri": f"s3://{BUCKET}/datasets/",
        "S3DataDistributionType": "FullyReplicated",
    }


def test_hot_data_comes_from_the_directory_bucket() -> None:
    found = channels(sagemaker_inputs(of(**ON_EXPRESS), **VPC))
    assert found["datasets"]["DataSource"]["S3DataSource"]["S3Uri"].startswith(f"s3://{EXPRESS}/")


def test_a_channel_may_have_a_name_and_a_place_of_its_own() -> None:
    own = {"train": f"s3://{BUCKET}/datasets/train/", "validation": "/fsx/datasets/validation"}
    found = channels(sagemaker_inputs(of(**ON_LUSTRE), **VPC, channels=own, stream_from_s3=False))
    assert found["train"]["InputMode"] == "File"
    directory = found["validation"]["DataSource"]["FileSystemDataSource"]["DirectoryPath"]
    assert directory == f"/{SYSTEM.mount_name}/datasets/validation"


@pytest.mark.parametrize(
    ("asked", "options", "message"),
    [
        (ON_LUSTRE, {"channels": {"train": "/home/data"}}, "channel train must lie below /fsx, got: '/home/data'"),
        (ON_S3, {"channels": {"train": "/fsx/datasets"}}, "the job has no file system"),
        (ON_S3, {"channels": {"train": "datasets"}}, "must be a path of the file system or an s3:// URI"),
        (ON_LUSTRE, {"channels": ("checkpoints",)}, "mounted for writing anyway"),
        (ON_S3, {"subnet_ids": []}, "subnet_ids and security_group_ids must name at least one each"),
    ],
)
def test_what_cannot_be_mounted_is_refused(asked: dict[str, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidJobError, match=message):
        sagemaker_inputs(of(**asked), **{**VPC, **options})


def test_in_the_container_the_contract_names_the_channels_of_the_job() -> None:
    inside = container_contract(of(**ON_LUSTRE))
    assert inside.location("datasets") == "/opt/ml/input/data/datasets/"
    assert inside.checkpoints.write_to == "/opt/ml/input/data/checkpoints/"
    assert inside.scratch.local_nvme_gb == 0
    assert container_contract(of(**ON_S3)).location("datasets") == f"s3://{BUCKET}/datasets/"
