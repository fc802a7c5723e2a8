"""What must be there before the blocks of a page run: what its reader has, and a page does not show."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.docs.blocks import ROOT
from training_storage.training import StorageContract

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.docs.surroundings import Surroundings

_SAMPLES = 300


def prepare(surroundings: Surroundings) -> None:
    """Make what the page's reader has."""
    setup = _SETUPS.get(surroundings.page)
    if setup is not None:
        setup(surroundings)


def _images(surroundings: Surroundings) -> None:
    """Small files in the lake, more of them than 4 nodes have readers."""
    assert surroundings.job is not None
    s3 = _without_shards(surroundings)
    for number in range(_SAMPLES):
        for name, body in (("jpg", b"image"), ("cls", b"7")):
            s3.put_object(Bucket=surroundings.job.lake, Key=f"raw/images/{number:05d}.{name}", Body=body)


def _checkpoints(surroundings: Surroundings) -> None:
    assert surroundings.job is not None
    for step in (11000, 12000, 13000):
        surroundings.job.save_checkpoint(step)


def _without_shards(surroundings: Surroundings) -> Any:
    """Remove what another page has packed; return the client."""
    assert surroundings.job is not None
    s3, lake = surroundings.client("s3"), surroundings.job.lake
    for found in s3.list_objects_v2(Bucket=lake, Prefix="datasets/images/").get("Contents", []):
        s3.delete_object(Bucket=lake, Key=found["Key"])
    return s3


def _shards(surroundings: Surroundings) -> None:
    """Packed shards in the lake."""
    from training_storage.training.shard_pack import pack_shards  # noqa: PLC0415 -- for one page
    from training_storage.training.shard_s3 import S3Access  # noqa: PLC0415

    assert surroundings.job is not None
    small = surroundings.folder / "small"
    small.mkdir()
    for number in range(64):
        (small / f"{number}.jpg").write_bytes(b"image")
        (small / f"{number}.cls").write_text("7", encoding="utf-8")
    contract = StorageContract.read(surroundings.job.folder / "storage.json")
    _without_shards(surroundings)
    target = f"s3://{surroundings.job.lake}/datasets/images/"
    pack_shards(source=str(small), target=target, shards=2, readers=None, processes=1, access=S3Access.of(contract))


def _checkout(surroundings: Surroundings) -> None:
    (surroundings.folder / "examples").symlink_to(ROOT / "examples")


def _overview(surroundings: Surroundings) -> None:
    _images(surroundings)
    _checkpoints(surroundings)


def _home_that_was_left(surroundings: Surroundings) -> None:
    client = surroundings.client("efs")
    made = client.create_file_system(CreationToken="left", Tags=[{"Key": "training-storage:job", "Value": "default"}])
    surroundings.names["file_system_id"] = made["FileSystemId"]


def _subnet_that_was_left(surroundings: Surroundings) -> None:
    client = surroundings.client("ec2")
    vpc = client.create_vpc(CidrBlock="10.77.0.0/24")["Vpc"]["VpcId"]
    subnet = client.create_subnet(VpcId=vpc, CidrBlock="10.77.0.0/24")["Subnet"]["SubnetId"]
    surroundings.names |= {"vpc_id": vpc, "subnet_id": subnet}


def _two_templates(surroundings: Surroundings) -> None:
    """A file system before and after a change of its key."""
    for name, key in (("last.json", "alias/old"), ("next.json", "alias/new")):
        properties: dict[str, Any] = {
            "FileSystemType": "LUSTRE",
            "StorageCapacity": 1200,
            "SubnetIds": ["subnet-0123456789abcdef0"],
            "KmsKeyId": key,
            "LustreConfiguration": {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125},
        }
        resources = {"Fs": {"Type": "AWS::FSx::FileSystem", "UpdateReplacePolicy": "Retain", "Properties": properties}}
        (surroundings.folder / name).write_text(json.dumps({"Resources": resources}), encoding="utf-8")


def _training_loop(surroundings: Surroundings) -> None:
    """A loop's own names, and a checkpoint that somebody wrote to the local disk."""
    import torch  # noqa: PLC0415 -- a second, for one page

    assert surroundings.job is not None
    surroundings.names |= {"torch": torch, "model": torch.nn.Linear(2, 2), "loader": range(3)}
    folder = surroundings.job.folder / "scratch/checkpoints/step-0000001200"
    folder.mkdir(parents=True)
    (folder / "model.pt").write_bytes(b"weights")


_SETUPS: Mapping[str, Callable[[Surroundings], None]] = {
    "README.md": _overview,
    "docs/archive.md": _checkpoints,
    "docs/checking.md": _two_templates,
    "docs/checkpoints.md": _training_loop,
    "docs/cluster.md": _home_that_was_left,
    "docs/deleting.md": _subnet_that_was_left,
    "docs/loaders.md": _shards,
    "docs/shards.md": _images,
    "examples/README.md": _checkout,
}
