"""A SageMaker AI training job that mounts the same file system and reads the same lake.

Plain dictionaries for ``CreateTrainingJob``; the SageMaker SDK is not needed.
"""

from __future__ import annotations

import dataclasses
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from training_storage.planning.errors import InvalidJobError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from training_storage.training.contract import Lustre, StorageContract

#: Where SageMaker mounts the channels of a job, and what it makes of a checkpoint configuration.
CHANNELS_PATH: Final = "/opt/ml/input/data"
MANAGED_PATH: Final = "/opt/ml/checkpoints"
#: Local disk of the container.
_SCRATCH: Final = "/tmp/training-storage"  # noqa: S108 -- in a container of its own
_CHECKPOINTS: Final = "checkpoints"


def sagemaker_inputs(
    contract: StorageContract,
    *,
    subnet_ids: Sequence[str],
    security_group_ids: Sequence[str],
    channels: Mapping[str, str] | Sequence[str] = ("datasets",),
    stream_from_s3: bool = True,
    managed_checkpoints: bool = False,
) -> dict[str, Any]:
    """Return the parts of a ``CreateTrainingJob`` request that say where its storage is.

    What lies on the job's file system is mounted from there, the rest comes from the lake or S3 Express One Zone. If
    checkpoints are written to the file system first, a channel ``checkpoints`` is mounted for writing beside the ones
    asked for. In the container `container_contract` says the same as the node's contract does on a node.

    Parameters
    ----------
    contract
        Of the job.
    subnet_ids
        One, of the file system's zone: the job's instances and its mounts are there.
    security_group_ids
        The client security group of the file system (`LustreFileSystem.client_security_group`), and others of yours.
    channels
        Purposes of the contract, such as ``("datasets", "models")``, or their place by channel name.
    stream_from_s3
        Stream objects when they are read (FastFile) instead of copying all of them before the start (File).
    managed_checkpoints
        Let SageMaker copy ``/opt/ml/checkpoints`` to the lake as well, below ``managed/``. It copies files while they
        are written, in no order, and all of them back at a restart: publish there with a marker, or leave it out.

    Returns
    -------
    dict
        InputDataConfig and VpcConfig, and CheckpointConfig if asked for.

    Raises
    ------
    InvalidJobError
        For a purpose that the contract has no place for, or without a subnet or security group.

    Notes
    -----
    The directory of a file system begins with its mount name: ``/MOUNTNAME/datasets`` (SageMaker's developer guide,
    "Setting up training jobs to access datasets"; the SDK's ``FileSystemInput`` takes the same).
    """
    if not subnet_ids or not security_group_ids:
        raise InvalidJobError(
            "subnet_ids and security_group_ids must name at least one each: a training job reaches a file system"
            f" through a VPC only, got: {list(subnet_ids)!r} and {list(security_group_ids)!r}"
        )
    places = dict(channels) if hasattr(channels, "keys") else dict.fromkeys(channels, "")
    inputs = [
        _channel(contract, name, place or contract.location(name), stream_from_s3=stream_from_s3)
        for name, place in places.items()
    ]
    if contract.checkpoints.path is not None:
        if _CHECKPOINTS in places:
            raise InvalidJobError("channels must not name checkpoints: they are mounted for writing anyway")
        inputs.append(_file_system(contract, _CHECKPOINTS, contract.checkpoints.path, access="rw"))
    request: dict[str, Any] = {
        "InputDataConfig": inputs,
        "VpcConfig": {"SecurityGroupIds": list(security_group_ids), "Subnets": list(subnet_ids)},
    }
    if managed_checkpoints:
        uri = f"{contract.checkpoints.durable_uri}managed/"
        request["CheckpointConfig"] = {"S3Uri": uri, "LocalPath": MANAGED_PATH}
    return request


def container_contract(contract: StorageContract) -> StorageContract:
    """Return the contract as it holds in the container: the same places under SageMaker's paths.

    Read the job's contract from its SSM parameter there; the container has no ``/etc/training-storage``.
    """
    lustre = contract.lustre
    checkpoints = dataclasses.replace(
        contract.checkpoints,
        path=None if contract.checkpoints.path is None else _mounted(_CHECKPOINTS),
        local_path=f"{_SCRATCH}/checkpoints",
    )
    return dataclasses.replace(
        contract,
        lustre=None
        if lustre is None
        else dataclasses.replace(
            lustre, mount_path=CHANNELS_PATH, paths={purpose: _mounted(purpose) for purpose in lustre.paths}
        ),
        scratch=dataclasses.replace(contract.scratch, path=_SCRATCH, local_nvme_gb=0),
        loader=dataclasses.replace(contract.loader, cache_path=f"{_SCRATCH}/cache"),
        checkpoints=checkpoints,
    )


def _mounted(channel: str) -> str:
    return f"{CHANNELS_PATH}/{channel}/"


def _channel(contract: StorageContract, name: str, place: str, *, stream_from_s3: bool) -> dict[str, Any]:
    if place.startswith("/"):
        return _file_system(contract, name, place, access="ro")
    if not place.startswith("s3://"):
        raise InvalidJobError(
            f"channel {name} must be a path of the file system or an s3:// URI, got: {place!r}; leave the place empty"
            " for the contract's own"
        )
    return {
        "ChannelName": name,
        "InputMode": "FastFile" if stream_from_s3 else "File",
        # Whole on each instance: which shards a rank reads is the loader's business.
        "DataSource": {
            "S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": place, "S3DataDistributionType": "FullyReplicated"}
        },
    }


def _file_system(contract: StorageContract, name: str, path: str, *, access: str) -> dict[str, Any]:
    lustre = contract.lustre
    if lustre is None:
        raise InvalidJobError(f"channel {name} must be an s3:// URI: the job has no file system, got: {path!r}")
    return {
        "ChannelName": name,
        "InputMode": "File",
        "DataSource": {
            "FileSystemDataSource": {
                "FileSystemId": lustre.file_system_id,
                "FileSystemType": "FSxLustre",
                "FileSystemAccessMode": access,
                "DirectoryPath": _directory(lustre, name, path),
            }
        },
    }


def _directory(lustre: Lustre, name: str, path: str) -> str:
    mounted = PurePosixPath(path)
    if not mounted.is_relative_to(lustre.mount_path):
        raise InvalidJobError(f"channel {name} must lie below {lustre.mount_path}, got: {path!r}")
    return str(PurePosixPath("/", lustre.mount_name, mounted.relative_to(lustre.mount_path)))
