"""The storage plan: what a job gets, why, and what it costs."""

from __future__ import annotations

import json
from collections.abc import Mapping  # noqa: TC003 - the codec reads annotations at run time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from training_storage.planning import catalog, summary
from training_storage.planning.codec import decode, encode
from training_storage.planning.errors import InvalidPlanError
from training_storage.planning.job import TrainingJob  # noqa: TC001 - the codec reads annotations at run time
from training_storage.planning.value import Value

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_VERSION = 1
#: Stands for the data lake's bucket in a plan: no bucket name is known when planning.
DATA_LAKE = "{data_lake}"


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Alternative(Value):
    """A configuration that was not chosen, with what it would cost (None where it was not costed) and why not."""

    tiers: tuple[str, ...]
    configuration: Mapping[str, object]
    per_month_usd: float | None
    run_usd: float | None
    why_not: str


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Selection(Value):
    """The tiers of a job and the rules that chose them; `rules` and `reasons` run in parallel."""

    tiers: tuple[str, ...]
    rules: tuple[str, ...]
    reasons: tuple[str, ...]
    alternatives: tuple[Alternative, ...]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class DemandSummary(Value):
    """What the job asks of storage, in the units that the names carry."""

    read_gb_per_s: float
    checkpoint_size_gib: float
    checkpoint_write_gb_per_s: float
    restore_gb_per_s: float
    hot_capacity_gib: float
    checkpoint_interval_minutes: float
    young_interval_minutes: float
    checkpoint_stall_seconds: float
    slowest_rank_gib: float | None
    effective_training_time_ratio: float
    mtbf_hours: float
    get_per_s: float
    put_per_s: float
    prefixes: int
    metadata_iops: int


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class LinkedFolder(Value):
    """A data repository association: a directory of the file system and its folder in the data lake.

    Parameters
    ----------
    file_system_path
        Directory, for example ``/datasets/``.
    data_repository_path
        Folder, relative to the lake: ``s3://{data_lake}/datasets/``. Whoever deploys the plan puts the bucket's name in
        the place of ``{data_lake}``.
    auto_import_events, auto_export_events
        Events (``NEW``, ``CHANGED``, ``DELETED``) that travel by themselves; empty for none.
    batch_import_metadata
        Whether the folder's metadata is imported once on creation.
    """

    file_system_path: str
    data_repository_path: str
    auto_import_events: tuple[str, ...]
    auto_export_events: tuple[str, ...]
    batch_import_metadata: bool


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class LustrePlan(Value):
    """An FSx for Lustre file system; `metadata_iops` is None where the type takes no metadata configuration."""

    deployment_type: str
    storage_capacity_gib: int
    per_unit_storage_throughput: int
    baseline_mb_per_s: float
    metadata_iops: int | None
    efa_enabled: bool
    efa_interfaces_per_client: int
    file_system_type_version: str
    data_repository_associations: tuple[LinkedFolder, ...]

    @property
    def metadata_mode(self) -> str | None:
        """``AUTOMATIC`` where the IOPS are those that come with the capacity, else ``USER_PROVISIONED``, or None."""
        if self.metadata_iops is None:
            return None
        automatic = catalog.lustre.automatic_metadata_iops(self.storage_capacity_gib)
        return "AUTOMATIC" if self.metadata_iops == automatic else "USER_PROVISIONED"


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ExpressPlan(Value):
    """A directory bucket; `zone_id` is None where the catalog knows no zone that fits."""

    zone_id: str | None


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class S3Plan(Value):
    """The folders of the data lake that the job uses."""

    folders: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Placement(Value):
    """Where a kind of data lives: on a hot tier or not, durably, and when it leaves the hot tier."""

    data: str
    hot: str | None
    durable: str
    leaves_hot: str


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Lever(Value):
    """A change of the job that would save money."""

    change: Mapping[str, object]
    saves_run_usd: float
    why: str


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class HourlyCost(Value):
    """USD per hour: all nodes running, no node running, and with the stack gone (the lake remains)."""

    running: float | None
    nodes_at_zero: float | None
    parked: float | None


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class RunCost(Value):
    """USD of the run. None where a price is not known in the Region."""

    storage: float | None
    lake_growth: float | None
    requests_and_transfer: float | None
    idle_accelerators: float | None
    lost_work: float | None
    total: float | None


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class LakeGrowth(Value):
    """Checkpoints that the run brings into the lake.

    Parameters
    ----------
    checkpoints
        How many are archived in the run.
    written_gib
        Bytes that reach the lake in the run, in GiB.
    held_gib
        The most that lies there at a time, in GiB: those kept, and replaced ones until their versions expire. Assumes
        that the lake is pruned, as the scheduled archive and the sample job do (``archive --prune --yes``).
    run_usd
        Holding `held_gib` all the run and the requests that write `written_gib`; None where a price is not known.
    last_export_gib
        The most that comes besides when the file system goes, in GiB: all checkpoints on it and one half written. Lies
        there until the lake is pruned, and is not in `run_usd`: the run has ended. None in plans that do not say it.
    """

    checkpoints: float
    written_gib: float
    held_gib: float
    run_usd: float | None
    last_export_gib: float | None = None


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Cost(Value):
    """What the plan costs.

    Parameters
    ----------
    currency, prices_as_of
        Of the price list.
    per_month_usd
        By tier, and ``cluster`` with all nodes running.
    per_hour_usd, run_usd
        The same by the hour, and the parts of the run.
    lake
        Checkpoints in the lake, whose money is within `run_usd`; None in plan files of earlier versions.
    """

    currency: str
    prices_as_of: str
    per_month_usd: Mapping[str, float | None]
    per_hour_usd: HourlyCost
    run_usd: RunCost
    lake: LakeGrowth | None = None


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class QuotaUse(Value):
    """A quota of the account and what this plan needs of it; `code` is None where none is published."""

    name: str
    code: str | None
    limit: int
    needed: int


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class StoragePlan(Value):
    """The storage of one job.

    `job` has every field resolved and `assumed` names those that were filled in. A plan is complete: deploy it as a
    file, do not feed its fields back as a job.
    """

    schema_version: int
    job: TrainingJob
    assumed: tuple[str, ...]
    selection: Selection
    demand: DemandSummary
    fsx_lustre: LustrePlan | None
    s3_express: ExpressPlan | None
    s3: S3Plan
    placement: tuple[Placement, ...]
    levers: tuple[Lever, ...]
    cost: Cost
    quotas: tuple[QuotaUse, ...]
    warnings: tuple[str, ...]

    @property
    def region(self) -> str:
        """Region of the plan."""
        if self.job.region is None:
            raise InvalidPlanError("plan.job.region must be resolved, got: null.")
        return self.job.region

    @property
    def zone_id(self) -> str | None:
        """Zone id of every zonal resource, or None where the catalog knows none (a warning says so)."""
        return self.job.zone_id

    @property
    def tiers(self) -> tuple[str, ...]:
        """The chosen tiers, ``s3`` first."""
        return self.selection.tiers

    def summary_lines(self) -> tuple[str, ...]:
        """Return the plan in a few lines: tiers and why, sizes, money, warnings."""
        return summary.summary_lines(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        values: dict[str, Any] = encode(self)
        return values

    def to_json(self) -> str:
        """Return the plan as JSON text with a final newline."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_dict(cls, values: object) -> Self:
        """Read a plan, strictly.

        Raises
        ------
        InvalidPlanError
            For another schema_version, for a missing or unknown key or a wrong type, naming the place, and for parts
            that contradict each other or that AWS would refuse.
        InvalidJobError
            If the plan's job is not a valid job.
        """
        if not isinstance(values, dict) or "schema_version" not in values:
            raise InvalidPlanError("a plan must be an object with schema_version, got: something else.")
        version = values["schema_version"]
        if isinstance(version, bool) or version != SCHEMA_VERSION:
            raise InvalidPlanError(
                f"schema_version must be {SCHEMA_VERSION}, got: {version!r}. Write the plan again with this version."
            )
        # Loaded here, because the rules it applies know plans.
        from training_storage.planning.plan_consistency import check_consistency  # noqa: PLC0415

        plan = decode(cls, values, "plan")
        check_consistency(plan)
        return plan

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a plan from JSON text, strictly; raises like `from_dict`."""
        try:
            values = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
        except json.JSONDecodeError as error:
            raise InvalidPlanError(f"a plan must be JSON, got text that is not: {error}.") from None
        return cls.from_dict(values)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the plan file at `path`; raises like `from_json`, and InvalidPlanError if it cannot be read."""
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise InvalidPlanError(
                f"plan must name a plan file, got: '{path}', file not found. Write one with "
                "training-storage plan --out plan.json."
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidPlanError(f"plan must name a readable plan file, got: '{path}' ({error}).") from None
        return cls.from_json(text)


def _refuse_constant(name: str) -> float:
    raise InvalidPlanError(f"a plan must hold finite numbers, got: {name}.")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise InvalidPlanError("a plan must name each key once, got: a repeated key.")
    return values
