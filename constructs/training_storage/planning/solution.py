"""A job and the configuration that was found for it, before it is put into a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_storage.planning import bill, configuration, cost
from training_storage.planning.demand import Needs, assess
from training_storage.planning.resolution import Situation, resolve
from training_storage.planning.selection import choose_tiers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from training_storage.planning.configuration import Configuration
    from training_storage.planning.job import TrainingJob
    from training_storage.planning.plan import Cost, LakeGrowth


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Solution:
    """Everything that a plan, its alternatives and its explanation are made of.

    `job` is what the user said, `environment_region` the Region of the surroundings.
    """

    job: TrainingJob
    environment_region: str | None
    situation: Situation
    needs: Needs
    found: Configuration

    def lines(self) -> list[bill.Line]:
        """Return the amounts of the run."""
        return bill.bill(self.situation, self.needs, self.found.layout, self.found.result)

    def money(self) -> Cost:
        """Return the money; None where the Region has no price."""
        return cost.money(situation=self.situation, lines=self.lines(), lake=self.lake_growth())

    def lake_growth(self) -> LakeGrowth:
        """Return what the run brings into the lake."""
        return cost.lake_growth(
            situation=self.situation, needs=self.needs, layout=self.found.layout, result=self.found.result
        )

    def ranking_parts(self) -> Mapping[str, float]:
        """Return the USD of the run by part, with stand-ins for prices that the Region lacks."""
        return cost.ranking_parts(self.situation, self.lines())


def solve(job: TrainingJob, *, environment_region: str | None = None) -> Solution:
    """Return the least costly configuration for `job`; raises like `plan_storage`."""
    situation = resolve(job, environment_region=environment_region)
    needs = assess(situation)
    found = configuration.configure(situation, needs, choose_tiers(situation, needs))
    return Solution(job=job, environment_region=environment_region, situation=situation, needs=needs, found=found)
