"""What the user says about a training job."""

from __future__ import annotations

import dataclasses
import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from training_storage.planning import catalog
from training_storage.planning.catalog.regions import ZONE_ID_ALLOWED, ZONE_ID_PATTERN, ZONE_ID_REMEDY
from training_storage.planning.errors import InvalidJobError, did_you_mean
from training_storage.planning.field_kinds import Choice, Kind, Number, Text, Whole, Words

if TYPE_CHECKING:
    from collections.abc import Mapping

INTERFACES = ("posix", "object")
TIERS = ("s3", "fsx-lustre", "s3-express")
NETWORK_PATHS = ("ena", "ena-multi-ip", "efa", "efa-gds")
#: The prefix of a job without a name; a job may not take it.
UNNAMED = "default"

_INTERFACE = Choice(allowed=INTERFACES)
#: The kinds of the fields that may be left out, in the order of the dataclass.
_KINDS: dict[str, Kind] = {
    "instances": Whole(minimum=1, maximum=100_000, example=256),
    "name": Text(
        pattern=r"[a-z][a-z0-9-]{0,29}",
        allowed="a lowercase letter, then lowercase letters, digits and hyphens, at most 30 in all",
        example="llama-run-7",
    ),
    "instance_type": Choice(allowed=catalog.instance_type_names()),
    "interface": _INTERFACE,
    "checkpoint_interface": _INTERFACE,
    "model": Choice(
        allowed=tuple(catalog.workloads.models()),
    ),
    "model_parameters": Whole(minimum=10**6, maximum=10**14, example=70_000_000_000),
    "bytes_per_parameter": Number(minimum=0.5, maximum=100.0, unit="bytes", example=14.0),
    "fine_tuning": Choice(allowed=("full", "lora")),
    "checkpoint_size_gib": Number(minimum=1e-6, maximum=1e9, unit="GiB", example=911.0),
    "checkpoint_interval_minutes": Number(minimum=0.01, maximum=1e12, unit="minutes", example=30.0),
    "checkpoint_mode": Choice(allowed=("async", "sync")),
    "checkpoint_stall_budget_seconds": Number(minimum=0.1, maximum=86_400.0, unit="seconds", example=60.0),
    "restore_budget_seconds": Number(minimum=0.1, maximum=86_400.0, unit="seconds", example=300.0),
    "checkpoints_kept": Whole(minimum=1, maximum=1000, example=2),
    "durable_interval_minutes": Number(minimum=1.0, maximum=1e6, unit="minutes", example=360.0),
    "durable_checkpoints_kept": Whole(minimum=0, maximum=10_000, example=4),
    "workload": Choice(allowed=tuple(catalog.workloads.workloads())),
    "read_gb_per_s_per_accelerator": Number(maximum=1000.0, unit="GB/s", example=0.1),
    "dataset_gib": Number(maximum=1e9, unit="GiB", example=50_000.0),
    "hot_dataset_gib": Number(maximum=1e9, unit="GiB", example=10_000.0),
    "mean_file_size_mib": Number(minimum=1e-6, maximum=1e8, unit="MiB", example=0.1),
    "run_hours": Number(minimum=0.01, maximum=1e6, unit="hours", example=720.0),
    "failures_per_1000_node_days": Number(minimum=0.001, maximum=1e5, unit="failures", example=6.5),
    "mtbf_hours": Number(minimum=1e-6, maximum=1e8, unit="hours", example=24.0),
    "network_path": Choice(allowed=NETWORK_PATHS),
    "region": Text(pattern=r"\S+", allowed="a Region", example="us-east-1"),
    "zone_id": Text(pattern=r"\S+", allowed="a zone id", example="use1-az4"),
    "tiers": Words(
        word=Choice(
            allowed=TIERS,
            hints={"s3-files": "s3-files is listed as an alternative only, this version cannot deploy it."},
        )
    ),
    "lustre_deployment_type": Choice(allowed=tuple(catalog.lustre.deployment_types())),
    "prices": Text(pattern=r"[^\x00-\x1f\x7f]+", allowed="the path of a TOML file of prices", example="prices.toml"),
}


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """One training job. Only `instances` is required; None means: not given.

    What is left out is filled from ``training_storage.planning.defaults`` when the job is planned, and listed as
    assumed.

    Parameters
    ----------
    instances
        Nodes of the cluster, 1 to 100,000.
    name
        Name of the job; enters stack name and linked prefixes.
    instance_type
        A type of the catalog, for example ``p5.48xlarge``.
    interface, checkpoint_interface
        How the code reads, and how it writes checkpoints: ``posix`` or ``object``.
    model
        A checkpoint of the catalog (``llama3-8b``); `model_parameters` beats it, `checkpoint_size_gib` beats both.
    model_parameters
        Number of parameters.
    bytes_per_parameter
        Bytes of checkpoint per parameter.
    fine_tuning
        ``full`` or ``lora`` (only the adapter is saved).
    checkpoint_size_gib
        Size of one whole checkpoint in GiB.
    checkpoint_interval_minutes
        Minutes between checkpoints.
    checkpoint_mode
        ``async`` (copied to the host, written in the background) or ``sync``.
    checkpoint_stall_budget_seconds, restore_budget_seconds
        Longest wait for a synchronous save and for a restore, in seconds. Limits if given, targets if assumed.
    checkpoints_kept
        Complete checkpoints on the hot tier.
    durable_interval_minutes
        Minutes between archived checkpoints.
    durable_checkpoints_kept
        Archived checkpoints kept in the lake besides the newest two.
    workload
        A reader of the catalog (``unet3d``); `read_gb_per_s_per_accelerator` beats it.
    read_gb_per_s_per_accelerator
        Read rate of one accelerator at full use in GB/s (decimal).
    dataset_gib, hot_dataset_gib
        Size of the data set in the lake, and of the part that the hot tier holds, in GiB.
    mean_file_size_mib
        Mean size of a file of the data set in MiB.
    run_hours
        Length of the run in hours.
    failures_per_1000_node_days, mtbf_hours
        How often the job fails; `mtbf_hours` (of the whole job) beats the rate.
    network_path
        ``ena``, ``ena-multi-ip`` (several addresses, for S3), ``efa`` or ``efa-gds``.
    region, zone_id
        Region, and the zone *id* (``use1-az4``; zone names mean different zones in each account).
    tiers
        Overrules the selection: exactly these (``s3`` is always in).
    lustre_deployment_type
        ``PERSISTENT_2``, ``PERSISTENT_1`` or ``SCRATCH_2``.
    prices
        Path of a TOML file of prices instead of the catalog's.

    Raises
    ------
    InvalidJobError
        If a value is not allowed; one line with the value got, the values allowed and the way out.
    """

    instances: int
    name: str | None = None
    instance_type: str | None = None
    interface: str | None = None
    checkpoint_interface: str | None = None
    model: str | None = None
    model_parameters: int | None = None
    bytes_per_parameter: float | None = None
    fine_tuning: str | None = None
    checkpoint_size_gib: float | None = None
    checkpoint_interval_minutes: float | None = None
    checkpoint_mode: str | None = None
    checkpoint_stall_budget_seconds: float | None = None
    restore_budget_seconds: float | None = None
    checkpoints_kept: int | None = None
    durable_interval_minutes: float | None = None
    durable_checkpoints_kept: int | None = None
    workload: str | None = None
    read_gb_per_s_per_accelerator: float | None = None
    dataset_gib: float | None = None
    hot_dataset_gib: float | None = None
    mean_file_size_mib: float | None = None
    run_hours: float | None = None
    failures_per_1000_node_days: float | None = None
    mtbf_hours: float | None = None
    network_path: str | None = None
    region: str | None = None
    zone_id: str | None = None
    tiers: tuple[str, ...] | None = None
    lustre_deployment_type: str | None = None
    prices: str | None = None

    def __post_init__(self) -> None:
        _KINDS["instances"].check("instances", self.instances)
        for key in self.given():
            _KINDS[key].check(key, getattr(self, key))
        if self.name == UNNAMED:
            raise InvalidJobError(
                f"name must not be {UNNAMED!r}, got: {UNNAMED!r}. Jobs without a name use that prefix; choose another."
            )
        if self.region is not None:
            catalog.region(self.region)
        if self.zone_id is not None:
            self._check_zone_id(self.zone_id)
        if (
            self.hot_dataset_gib is not None
            and self.dataset_gib is not None
            and self.hot_dataset_gib > self.dataset_gib
        ):
            raise InvalidJobError(
                f"hot_dataset_gib must be at most dataset_gib ({self.dataset_gib:g}), got: {self.hot_dataset_gib:g}."
            )

    @classmethod
    @functools.cache
    def field_names(cls) -> tuple[str, ...]:
        """Return the names of all fields, `instances` first."""
        return tuple(field.name for field in dataclasses.fields(cls))

    @classmethod
    def field_help(cls, name: str) -> str:
        """Return what the field `name` accepts."""
        return _KINDS[name].allowed_words

    @classmethod
    def from_strings(cls, values: Mapping[str, str]) -> Self:
        """Read a job from text, strictly.

        Parameters
        ----------
        values
            Field names and their text, as ``-c`` and the command line give them.

        Raises
        ------
        InvalidJobError
            For an unknown key, a missing `instances`, or a value that is not plainly one of the allowed.
        """
        for key in values:
            if key not in _KINDS:
                raise InvalidJobError(
                    f"{key!r} is not a field of a training job.{did_you_mean(key, _KINDS)} "
                    f"Allowed: {', '.join(cls.field_names())}."
                )
        if "instances" not in values:
            raise InvalidJobError(
                "instances is missing: say how many nodes the cluster has, for example instances=256."
            )
        parsed: dict[str, Any] = {key: _KINDS[key].parse(key, text) for key, text in values.items()}
        return cls(**parsed)

    @classmethod
    def field_text(cls, name: str, value: object) -> str:
        """Return `value` of the field `name` as text that `from_strings` reads."""
        return _KINDS[name].format(value)

    def to_strings(self) -> dict[str, str]:
        """Return the given fields as text; ``from_strings`` reads the same job from it."""
        return {
            key: _KINDS[key].format(value) for key in self.field_names() if (value := getattr(self, key)) is not None
        }

    def given(self) -> frozenset[str]:
        """Return the names of the fields that are not None."""
        return frozenset([key for key in self.field_names() if getattr(self, key) is not None])

    def _check_zone_id(self, zone_id: str) -> None:
        if self.region is not None and catalog.region(self.region).is_well_formed_zone_id(zone_id):
            return
        for region in catalog.regions().values():
            if region.is_zone_name(zone_id):
                known = ", ".join(region.zone_ids) or "none"
                raise InvalidJobError(
                    f"zone_id must be {ZONE_ID_ALLOWED}, got: {zone_id!r}; {ZONE_ID_REMEDY}. Names mean different zones"
                    f" in each account; zone ids known in {region.name}: {known}."
                )
        if self.region is not None:
            check_zone_of_region(zone_id=zone_id, region=catalog.region(self.region))
        elif not re.fullmatch(ZONE_ID_PATTERN, zone_id):
            raise InvalidJobError(f"zone_id must be {ZONE_ID_ALLOWED}, got: {zone_id!r}; {ZONE_ID_REMEDY}.")


def check_zone_of_region(*, zone_id: str, region: catalog.Region) -> None:
    """Raise InvalidJobError unless `zone_id` can be a zone id of `region`."""
    if region.is_well_formed_zone_id(zone_id):
        return
    owners = [other.name for other in catalog.regions().values() if other.is_well_formed_zone_id(zone_id)]
    way_out = f"Give region={owners[0]} with it." if owners else "Leave it out to take the first that fits."
    raise InvalidJobError(
        f"zone_id must be a zone id of {region.name} (known: {', '.join(region.zone_ids) or 'none'}), "
        f"got: {zone_id!r}. {way_out}"
    )
