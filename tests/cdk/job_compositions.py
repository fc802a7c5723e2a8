"""Whole jobs, and the constructs that only an existing account has, as often and wherever somebody wants them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING

import constructs
from aws_cdk import App, Environment, NestedStack, Stack, Stage
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_sns as sns

import training_storage
from training_storage import (
    DataLake,
    ImportedDataLake,
    ImportedDirectoryBucket,
    ImportedLustreFileSystem,
    TrainingJob,
    TrainingStorage,
    plan_storage,
)

if TYPE_CHECKING:
    from pathlib import Path

HERE = Environment(region="us-east-1")
KEY = "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
TOPIC = "arn:aws:sns:us-east-1:000000000000:alarms"


def every_construct() -> list[type[constructs.Construct]]:
    """The public constructs that somebody makes: not those that are only there to be derived from."""
    public = [getattr(training_storage, name) for name in training_storage.__all__]
    classes = [one for one in public if inspect.isclass(one) and issubclass(one, constructs.Construct)]
    return [one for one in classes if not any(one in other.__mro__[1:] for other in classes)]


def job(scope: constructs.Construct, name: str, *, lake: DataLake, parks: bool = True) -> TrainingStorage:
    """Make a job with both hot tiers on AWS PCS, and everything that runs beside it."""
    here = constructs.Construct(scope, name)
    return TrainingStorage(
        here,
        "Storage",
        plan=plan_storage(
            TrainingJob(instances=1200, interface="object", checkpoint_interface="posix", name=name.lower())
        ),
        data_lake=lake,
        alarm_topic=sns.Topic.from_topic_arn(here, "Topic", TOPIC),
        release_after_days=14,
        time_to_live_hours=72 if parks else None,
    )


def archived(scope: constructs.Construct, name: str, *, lake: DataLake) -> TrainingStorage:
    """Make a job that saves to a directory bucket, on an Auto Scaling group."""
    return TrainingStorage(
        constructs.Construct(scope, name),
        "Storage",
        plan=plan_storage(TrainingJob(instances=1000, interface="object", name=name.lower())),
        data_lake=lake,
        engine="ec2",
    )


def imported(scope: constructs.Construct, name: str) -> None:
    """Make one of each construct that stands for something that is there already."""
    here = constructs.Construct(scope, name)
    ImportedDataLake(here, "Lake", bucket_name=f"lake-{name.lower()}", encryption_key_arn=KEY)
    ImportedDirectoryBucket(here, "Hot", bucket_name=f"{name.lower()}--use1-az4--x-s3")
    group = ec2.SecurityGroup.from_security_group_id(here, "Clients", "sg-0123456789abcdef0")
    ImportedLustreFileSystem(
        here,
        "FileSystem",
        file_system_id="fs-0123456789abcdef0",
        mount_name="fsx",
        client_security_group=group,
    )


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """Two of every construct in the stack of a stage, and one in a stack nested there."""

    app: App
    stack: Stack
    nested: NestedStack
    jobs: tuple[TrainingStorage, ...]


def jobs(*, outdir: Path | None = None) -> Jobs:
    """Make an app with a stage whose stack holds two of every construct, and a nested stack with one of each."""
    app = App(outdir=str(outdir) if outdir else None)
    stack = Stack(Stage(app, "Prod", env=HERE), "Training")
    nested = NestedStack(stack, "Inner")
    lakes = [DataLake(stack, name, bucket_name_prefix=f"{name.lower()}-lake") for name in ("First", "Second")]
    made = (
        job(stack, "One", lake=lakes[0]),
        job(stack, "Two", lake=lakes[1]),
        archived(stack, "Three", lake=lakes[0]),
        archived(stack, "Four", lake=lakes[1]),
        job(nested, "Five", lake=lakes[0], parks=False),
        archived(nested, "Six", lake=DataLake(nested, "Third", bucket_name_prefix="third-lake")),
    )
    for name in ("Old", "Older"):
        imported(stack, name)
    imported(nested, "Oldest")
    return Jobs(app=app, stack=stack, nested=nested, jobs=made)
