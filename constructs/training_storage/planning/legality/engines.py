"""Rule: the engines that start nodes, by Region."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_storage.planning import catalog
from training_storage.planning.catalog.limits import hyperpod_regions
from training_storage.planning.legality.finding import Problem, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from training_storage.planning.catalog import Region

PCS, HYPERPOD = "AWS::PCS::Cluster", "AWS::SageMaker::Cluster"


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine, by its CloudFormation type, and where it shall run."""

    resource_type: str
    region: Region


@rule("region-engine", source="CloudFormation resource schemas by Region")
def engine(given: Engine) -> Iterator[Problem]:
    """Require that the Region has the engine."""
    if given.resource_type == PCS:
        there, name = [region.name for region in catalog.regions().values() if region.pcs], "AWS PCS"
    elif given.resource_type == HYPERPOD:
        there, name = list(hyperpod_regions()), "SageMaker HyperPod"
    else:
        return
    if given.region.name not in there:
        ours = [region for region in there if region.split("-")[0] == given.region.name.split("-")[0]] or there
        yield Problem(
            what="region",
            allowed=f"have {name}, as {', '.join(ours[:3])}",
            got=given.region.name,
            remedy="use another engine, such as EC2 Auto Scaling or Batch",
        )


RULES = (engine,)
