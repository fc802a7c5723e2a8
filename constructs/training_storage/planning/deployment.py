"""How a plan is deployed: the context keys beside a job's fields."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from training_storage.planning import catalog, defaults
from training_storage.planning.catalog.capacity_blocks import capacity_blocks
from training_storage.planning.engines import ENGINE_WORDS, check_region, packages_warning
from training_storage.planning.errors import InvalidJobError, did_you_mean
from training_storage.planning.field_kinds import Choice, Flag, Kind, Text, Whole, Words
from training_storage.planning.job import TrainingJob
from training_storage.planning.plan import StoragePlan
from training_storage.planning.text import SUMMARY_WIDTH, wrapped

if TYPE_CHECKING:
    from collections.abc import Mapping

_KINDS: Final[dict[str, Kind]] = {
    "plan": Text(pattern=r"[^\x00-\x1f\x7f]+", allowed="the path of a plan file", example="plan.json"),
    "engine": Choice(allowed=tuple(ENGINE_WORDS)),
    "egress": Choice(allowed=("nat", "isolated")),
    "purchase": Choice(allowed=("on-demand", "spot", "capacity-block")),
    "capacity_reservation_ids": Words(
        word=Text(pattern=r"cr-[0-9a-f]{8,17}", allowed="ids of reservations", example="cr-0123456789abcdef0")
    ),
    "ami_parameter": Text(
        pattern=r"/[A-Za-z0-9_./-]+",
        allowed="the name of an SSM parameter that starts with /",
        example="/my-team/training-ami",
    ),
    "home_file_system_id": Text(
        pattern=r"fs-[0-9a-f]{8,17}", allowed="the id of an EFS file system", example="fs-0123456789abcdef0"
    ),
    "slurm_version": Choice(allowed=catalog.pcs().slurm_versions),
    "alarm_topic_arn": Text(
        pattern=r"arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]{1,256}",
        allowed="the ARN of an SNS topic (not a FIFO one, which takes no alarms)",
        example="arn:aws:sns:us-east-1:111122223333:training-alarms",
    ),
    "checkpoints_disposable": Flag(),
    "release_after_days": Whole(minimum=1, maximum=3650, example=7),
    "time_to_live_hours": Whole(minimum=1, maximum=87600, example=720),
    "idle_park_hours": Whole(minimum=1, maximum=8760, example=12),
    "vpc_id": Text(pattern=r"vpc-[0-9a-f]{8,17}", allowed="the id of a VPC", example="vpc-0123456789abcdef0"),
    "subnet_id": Text(
        pattern=r"subnet-[0-9a-f]{8,17}", allowed="the id of a private subnet", example="subnet-0123456789abcdef0"
    ),
    "data_lake_bucket_name": Text(
        pattern=r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]",
        allowed="a bucket name without dots, which break checkpoint saves",
        example="my-data-lake",
    ),
    "data_lake_key_arn": Text(
        pattern=r"arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+",
        allowed="the ARN of a KMS key",
        example="arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab",
    ),
}
#: Options that make sense only together.
_TOGETHER: Final = (("vpc_id", "subnet_id"), ("data_lake_bucket_name", "data_lake_key_arn"))


@dataclass(frozen=True, kw_only=True)
class DeploymentOptions:
    """How to deploy a plan. Every field has a default.

    Parameters
    ----------
    plan
        Path of a plan file to deploy as it is, instead of a job.
    engine
        ``pcs`` (AWS PCS, Slurm) or ``ec2`` (Auto Scaling); None for ``pcs`` where it can serve the plan, else ``ec2``
        (`training_storage.planning.engines`).
    egress
        ``nat``, or ``isolated`` (interface endpoints only).
    purchase
        ``on-demand``, ``spot`` or ``capacity-block``.
    capacity_reservation_ids
        Reservations or Capacity Blocks to start nodes in; needed for ``capacity-block``.
    ami_parameter
        SSM parameter with the AMI id of the nodes; None for the default image.
    home_file_system_id
        EFS file system that an earlier cluster left, to be its /home again; None for a new one. Only for ``pcs``.
    slurm_version
        Version of Slurm; None for the newest that AWS PCS offers and its images are known to have. Only for ``pcs``.
    alarm_topic_arn
        SNS topic that is told of every alarm; None makes alarms without actions.
    checkpoints_disposable
        True if checkpoints of the hot tier may be lost with it: neither archived by schedule nor exported at the end.
    release_after_days
        Free the space of exported files that nobody has used for so many days; None never does.
    time_to_live_hours
        Park when the stack is so old, after a warning to `alarm_topic_arn`; None never does.
    idle_park_hours
        Park when no client has used the file system for so long, after a warning; None never does.
    vpc_id, subnet_id
        Existing network to use, both or neither.
    data_lake_bucket_name, data_lake_key_arn
        Existing data lake to use, both or neither.

    Raises
    ------
    InvalidJobError
        For a value that is not allowed, or options that do not fit each other.
    """

    plan: str | None = None
    engine: str | None = None
    egress: str = "nat"
    purchase: str = "on-demand"
    capacity_reservation_ids: tuple[str, ...] = ()
    ami_parameter: str | None = None
    home_file_system_id: str | None = None
    slurm_version: str | None = None
    alarm_topic_arn: str | None = None
    checkpoints_disposable: bool = False
    release_after_days: int | None = None
    time_to_live_hours: int | None = None
    idle_park_hours: int | None = None
    vpc_id: str | None = None
    subnet_id: str | None = None
    data_lake_bucket_name: str | None = None
    data_lake_key_arn: str | None = None

    def __post_init__(self) -> None:
        for name in self.field_names():
            value = getattr(self, name)
            if value is not None and value != ():
                _KINDS[name].check(name, value)
        for one, other in _TOGETHER:
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                given, lacking = (other, one) if getattr(self, one) is None else (one, other)
                raise InvalidJobError(f"{one} and {other} must be given together, got: {given} without {lacking}.")
        if self.purchase == "capacity-block" and not self.capacity_reservation_ids:
            raise InvalidJobError(
                "capacity_reservation_ids must name the Capacity Blocks for purchase=capacity-block, got: none. "
                "Give for example capacity_reservation_ids=cr-0123456789abcdef0."
            )
        for name in ("time_to_live_hours", "idle_park_hours"):
            if getattr(self, name) is not None and self.alarm_topic_arn is None:
                raise InvalidJobError(
                    f"alarm_topic_arn must be given with {name}, got: none. The warning before the park goes there; "
                    "for example alarm_topic_arn=arn:aws:sns:us-east-1:111122223333:training-alarms."
                )
        if self.purchase == "spot" and self.capacity_reservation_ids:
            raise InvalidJobError(
                "capacity_reservation_ids must be left out for purchase=spot, "
                f"got: {','.join(self.capacity_reservation_ids)!r}. Reservations serve on-demand and capacity-block."
            )

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        """Return the names of all options."""
        return tuple(field.name for field in dataclasses.fields(cls))

    @classmethod
    def from_strings(cls, values: Mapping[str, str]) -> Self:
        """Read options from text, strictly; raises InvalidJobError like the class, and for unknown keys."""
        for key in values:
            if key not in _KINDS:
                raise _unknown(key, cls.field_names())
        parsed: dict[str, Any] = {key: _KINDS[key].parse(key, text) for key, text in values.items()}
        return cls(**parsed)

    def check_fits(self, *, instances: int, instance_type: str) -> None:
        """Refuse a way of purchase that this number and type of instances cannot use.

        Raises
        ------
        InvalidJobError
            If the type is not sold that way, or the Capacity Blocks cannot hold that many instances.
        """
        sold = catalog.instance_type(instance_type).purchase
        if self.purchase not in sold:
            raise InvalidJobError(
                f"purchase must be one of {', '.join(sold)} for {instance_type}, got: {self.purchase!r}."
                + (" Give capacity_reservation_ids with it." if sold == ("capacity-block",) else "")
            )
        if self.purchase != "capacity-block":
            return
        limits = capacity_blocks()
        per_block, in_all = limits.instances, limits.instances_in_all
        if instances > in_all:
            raise InvalidJobError(
                f"instances must be at most {in_all} for purchase=capacity-block, got: {instances}. "
                "More need on-demand reservations."
            )
        blocks = len(self.capacity_reservation_ids)
        if instances > per_block * blocks:
            raise InvalidJobError(
                f"capacity_reservation_ids must name at least {-(-instances // per_block)} Capacity Blocks for "
                f"{instances} instances ({per_block} per block), got: {blocks}."
            )

    def notes(self, *, instances: int, instance_type: str | None = None, engine: str | None = None) -> tuple[str, ...]:
        """Return what a person should know of network and way of purchase, a line each.

        Parameters
        ----------
        instances, instance_type
            Of the plan; without a type, the default one is meant.
        engine
            That was chosen; without it the one asked for, or the default.
        """
        found = []
        if self.egress == "isolated":
            warning = packages_warning(
                engine or self.engine or next(iter(ENGINE_WORDS)),
                catalog.instance_type(instance_type or str(defaults.FIELDS["instance_type"].value)),
                ami_parameter=self.ami_parameter,
            )
            found += [] if warning is None else [f"warning: {warning}"]
        if self.purchase != "on-demand":
            found.append(f"prices of nodes are on demand, not of purchase={self.purchase}")
        if self.purchase == "capacity-block":
            limits, blocks = capacity_blocks(), len(self.capacity_reservation_ids)
            share = -(-instances // blocks)
            found.append(
                f"{instances} instances in {blocks} Capacity Block{'s' if blocks > 1 else ''}: each must hold {share}; "
                f"a block lasts at most {limits.days_maximum} days, or {limits.days_in_weeks_maximum} in whole weeks, "
                f"and EC2 terminates its instances {limits.end_minutes} minutes before it ends "
                f"({limits.ultraserver_end_minutes} in an UltraServer): save a checkpoint before"
            )
        return tuple(line for note in found for line in wrapped(note, first="  note     ", width=SUMMARY_WIDTH))


@dataclass(frozen=True, kw_only=True)
class DeploymentRequest:
    """What a context asks for.

    Parameters
    ----------
    job
        The job to plan; None without `instances`, and with a plan file.
    plan
        The plan read from a file; None without one.
    options
        How to deploy it.
    name, region
        Of the job or the plan, known even where `instances` is missing, so that a stack can be destroyed.
    """

    job: TrainingJob | None
    plan: StoragePlan | None
    options: DeploymentOptions
    name: str | None
    region: str | None


def split_context(context: Mapping[str, object]) -> DeploymentRequest:
    """Read all context values of a CDK app, once and strictly.

    Parameters
    ----------
    context
        Every key and value. CDK's own keys (with ``:`` or ``@``, or beginning with ``aws-cdk``) are left alone.

    Raises
    ------
    InvalidJobError
        For an unknown key, a value that is not text or not allowed, and for a plan file beside fields of a job.
    InvalidPlanError
        If the plan file is not a plan.
    """
    job_values: dict[str, str] = {}
    option_values: dict[str, str] = {}
    for key, value in context.items():
        if ":" in key or "@" in key or key.startswith("aws-cdk"):
            continue
        fields = TrainingJob.field_names()
        if key not in (*fields, *_KINDS):
            raise _unknown(key, (*fields, *_KINDS))
        if not isinstance(value, str):
            raise InvalidJobError(
                f"{key} must be text, as -c gives it, got: {value!r}. Write it in quotes in cdk.json."
            )
        (job_values if key in fields else option_values)[key] = value
    options = DeploymentOptions.from_strings(option_values)
    if options.plan is not None:
        return _from_plan(options, options.plan, job_values)
    # Without `instances` the other fields are checked all the same; any number of instances serves for that.
    job = TrainingJob.from_strings({"instances": "1", **job_values})
    if options.engine is not None and job.region is not None:
        check_region(options.engine, job.region)
    if "instances" in job_values:
        options.check_fits(
            instances=job.instances,
            instance_type=job.instance_type or str(defaults.FIELDS["instance_type"].value),
        )
    return DeploymentRequest(
        job=job if "instances" in job_values else None,
        plan=None,
        options=options,
        name=job.name,
        region=job.region,
    )


def _from_plan(options: DeploymentOptions, path: str, job_values: Mapping[str, str]) -> DeploymentRequest:
    if job_values:
        raise InvalidJobError(
            f"plan must be given without fields of a job, got: {', '.join(job_values)} beside it. "
            "A plan is complete: leave the fields out, or leave plan out to plan again."
        )
    plan = StoragePlan.read(Path(path))
    if plan.job.instance_type is not None:
        options.check_fits(instances=plan.job.instances, instance_type=plan.job.instance_type)
    return DeploymentRequest(job=None, plan=plan, options=options, name=plan.job.name, region=plan.region)


def _unknown(key: str, known: tuple[str, ...]) -> InvalidJobError:
    return InvalidJobError(
        f"{key!r} is not a key of training storage.{did_you_mean(key, known)} Allowed: {', '.join(known)}."
    )
