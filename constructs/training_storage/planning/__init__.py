"""Planning: pure Python, standard library only. From a training job to a storage plan.

>>> plan_storage(TrainingJob(instances=256)).tiers
('s3', 'fsx-lustre')
"""

from typing import TYPE_CHECKING

from training_storage.planning import catalog
from training_storage.planning.errors import InvalidJobError, InvalidPlanError, NoTierError, PlanningError
from training_storage.planning.job import TrainingJob
from training_storage.planning.plan import (
    DATA_LAKE,
    SCHEMA_VERSION,
    Alternative,
    Cost,
    DemandSummary,
    ExpressPlan,
    HourlyCost,
    Lever,
    LinkedFolder,
    LustrePlan,
    Placement,
    QuotaUse,
    RunCost,
    S3Plan,
    Selection,
    StoragePlan,
)
from training_storage.planning.planner import plan_storage, select_tiers
from training_storage.planning.resolution import DEFAULT_REGION

if TYPE_CHECKING:
    from training_storage.planning.deployment import DeploymentOptions, DeploymentRequest, split_context
    from training_storage.planning.engines import EngineChoice, choose_engine

__all__ = [
    "DATA_LAKE",
    "DEFAULT_REGION",
    "SCHEMA_VERSION",
    "Alternative",
    "Cost",
    "DemandSummary",
    "DeploymentOptions",
    "DeploymentRequest",
    "EngineChoice",
    "ExpressPlan",
    "HourlyCost",
    "InvalidJobError",
    "InvalidPlanError",
    "Lever",
    "LinkedFolder",
    "LustrePlan",
    "NoTierError",
    "Placement",
    "PlanningError",
    "QuotaUse",
    "RunCost",
    "S3Plan",
    "Selection",
    "StoragePlan",
    "TrainingJob",
    "catalog",
    "choose_engine",
    "plan_storage",
    "select_tiers",
    "split_context",
]


def __getattr__(name: str) -> object:
    """Load what only deployments use when it is asked for: a plan must start fast."""
    if name in ("DeploymentOptions", "DeploymentRequest", "split_context"):
        from training_storage.planning import deployment  # noqa: PLC0415

        return getattr(deployment, name)
    if name in ("EngineChoice", "choose_engine"):
        from training_storage.planning import engines  # noqa: PLC0415

        return getattr(engines, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
