"""Every storage and network construct together, as often and wherever somebody wants them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aws_cdk import App, Environment, NestedStack, Stack, Stage
from constructs import Construct

from training_storage import (
    DataLake,
    DataRepositoryAssociation,
    DirectoryBucket,
    LustreFileSystem,
    TrainingNetwork,
)

if TYPE_CHECKING:
    from pathlib import Path

ZONE = "use1-az4"


@dataclass(frozen=True, kw_only=True)
class Everything:
    """One of each construct."""

    network: TrainingNetwork
    lake: DataLake
    file_system: LustreFileSystem
    link: DataRepositoryAssociation
    directory_bucket: DirectoryBucket


def everything(scope: Construct, name: str, *, isolated: bool = False) -> Everything:
    """Make one of each below a construct called `name`."""
    here = Construct(scope, name)
    network = TrainingNetwork(
        here,
        "Network",
        zone_id=ZONE,
        addresses=64,
        egress="isolated" if isolated else "nat",
        node_apis=["ssm"] if isolated else [],
    )
    lake = DataLake(here, "Lake", bucket_name_prefix=f"lake-{name.lower()}")
    file_system = LustreFileSystem(
        here,
        "FileSystem",
        vpc=network.vpc,
        subnet=network.subnet,
        storage_capacity_gib=1200,
        per_unit_storage_throughput=125,
        encryption_key=lake.encryption_key,
    )
    link = DataRepositoryAssociation(
        here,
        "Datasets",
        file_system=file_system,
        file_system_path="/datasets",
        data_lake=lake,
        prefix="datasets/",
        import_events=["NEW", "CHANGED", "DELETED"],
    )
    return Everything(
        network=network,
        lake=lake,
        file_system=file_system,
        link=link,
        directory_bucket=DirectoryBucket(here, "Hot", zone_id=ZONE, base_name=name.lower()),
    )


@dataclass(frozen=True, kw_only=True)
class Composed:
    """Two of everything in the stack of a stage, and a third in a stack nested there."""

    app: App
    stage: Stage
    stack: Stack
    nested: NestedStack
    sets: tuple[Everything, ...]


def composed(*, outdir: Path | None = None) -> Composed:
    """Make an app with a stage whose stack holds two of everything, and a nested stack with a third."""
    app = App(outdir=str(outdir) if outdir else None)
    stage = Stage(app, "Prod", env=Environment(region="us-east-1"))
    stack = Stack(stage, "Training")
    nested = NestedStack(stack, "Inner")
    return Composed(
        app=app,
        stage=stage,
        stack=stack,
        nested=nested,
        sets=(everything(stack, "First"), everything(stack, "Second", isolated=True), everything(nested, "Third")),
    )
