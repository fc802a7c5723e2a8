"""Fills in what the user left out, as far as it does not depend on the chosen tiers."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from training_storage.planning import catalog, defaults
from training_storage.planning.catalog.prices import Prices, catalog_prices
from training_storage.planning.errors import InvalidJobError
from training_storage.planning.job import TrainingJob, check_zone_of_region
from training_storage.planning.tariff import Tariff, tariff_of
from training_storage.planning.units import GB, SECONDS_PER_HOUR, SECONDS_PER_MINUTE

#: Region where neither the job nor its surroundings name one.
DEFAULT_REGION = str(defaults.FIELDS["region"].value)
#: Up to here code is assumed to use objects, above POSIX. Source: the selection guide's "1 to 16 instances".
OBJECT_ASSUMED_UP_TO_INSTANCES = 16


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Situation:
    """A job with its defaults, what was given, and the catalog rows that it names.

    `job` has every field filled that does not depend on tiers and sizes. `given` is what the user said.
    """

    job: TrainingJob
    given: frozenset[str]
    instance: catalog.InstanceType
    region: catalog.Region
    prices: Prices
    warnings: tuple[str, ...]

    @property
    def accelerators(self) -> int:
        """Accelerators of the whole cluster."""
        return self.job.instances * self.instance.accelerators

    @cached_property
    def tariff(self) -> Tariff:
        """Prices of the job's Region; what it lacks is None."""
        return tariff_of(self.prices, self.region.name, stand_ins=False)

    @cached_property
    def ranking_tariff(self) -> Tariff:
        """Prices that configurations are compared by: another Region's stand in for those that this one lacks."""
        return tariff_of(self.prices, self.region.name, stand_ins=True)

    @cached_property
    def run_s(self) -> float:
        """Length of the run in seconds."""
        return self.number("run_hours") * SECONDS_PER_HOUR

    @cached_property
    def months(self) -> float:
        """Length of the run in months of the price list."""
        return self.number("run_hours") / self.prices.hours_per_month

    @cached_property
    def durable_s(self) -> float:
        """Seconds between archived checkpoints."""
        return self.number("durable_interval_minutes") * SECONDS_PER_MINUTE

    def number(self, field: str) -> float:
        """Return the resolved figure of `field`."""
        value = getattr(self.job, field)
        if not isinstance(value, (int, float)):
            raise TypeError(f"{field} is not resolved to a number: {value!r}")
        return value


def resolve(job: TrainingJob, *, environment_region: str | None) -> Situation:
    """Return `job` with its defaults.

    Parameters
    ----------
    environment_region
        Region of the caller's surroundings; used where the job names none.

    Raises
    ------
    InvalidJobError
        If the environment's Region or the prices file cannot be used, or fields do not fit each other.
    """
    given = job.given()
    values: dict[str, Any] = {key: default.value for key, default in defaults.FIELDS.items() if key not in given}
    values["region"] = job.region or environment_region or DEFAULT_REGION
    region = catalog.region(values["region"])
    if job.zone_id is not None:
        check_zone_of_region(zone_id=job.zone_id, region=region)
    instance = catalog.instance_type(job.instance_type or str(values["instance_type"]))
    accelerators = job.instances * instance.accelerators
    warnings: list[str] = []

    assumed_interface = "object" if job.instances <= OBJECT_ASSUMED_UP_TO_INSTANCES else "posix"
    values["interface"] = job.interface or assumed_interface
    values["checkpoint_interface"] = job.checkpoint_interface or values["interface"]
    _resolve_checkpoint(job, values, accelerators)
    _resolve_reads(job, values, instance, warnings)
    if job.mtbf_hours is not None and job.failures_per_1000_node_days is None:
        del values["failures_per_1000_node_days"]
    if "dataset_gib" not in given and job.hot_dataset_gib is not None:
        values["dataset_gib"] = job.hot_dataset_gib
    _check_network_path(job, instance, region)
    _check_lustre_deployment_type(job, region)
    prices = catalog_prices() if job.prices is None else _read_prices(job.prices)
    if not region.offers(instance.name):
        warnings.append(f"The catalog does not list {instance.name} in {region.name}: check that it is offered there.")
    if job.zone_id is not None and job.zone_id not in region.zone_ids:
        warnings.append(f"The catalog does not know the zone {job.zone_id}: check that it exists.")
    elif (
        job.zone_id is not None
        and (offering := region.zone_ids_offering(instance.name))
        and job.zone_id not in offering
    ):
        warnings.append(
            f"{job.zone_id} is not known to offer {instance.name}, {', '.join(offering)} are: nodes may never start."
        )
    return Situation(
        job=dataclasses.replace(job, **values),
        given=given,
        instance=instance,
        region=region,
        prices=prices,
        warnings=tuple(warnings),
    )


def _read_prices(path: str) -> Prices:
    # Loaded here: few plans have a file of their own.
    from training_storage.planning.catalog.price_files import read_prices  # noqa: PLC0415

    return read_prices(path)


def _resolve_checkpoint(job: TrainingJob, values: dict[str, Any], accelerators: int) -> None:
    """Fill in parameters and their bytes; what the given size or the named model makes needless stays None."""
    if job.checkpoint_size_gib is not None:
        values.pop("bytes_per_parameter", None)
        return
    if job.model_parameters is not None:
        return
    if job.model is not None:
        values["model_parameters"] = catalog.workloads.models()[job.model].parameters
        if job.bytes_per_parameter is None and job.fine_tuning != "lora":
            values.pop("bytes_per_parameter", None)
        return
    values["model_parameters"] = int(
        min(
            accelerators * defaults.number("parameters_per_accelerator"),
            defaults.number("parameters_maximum"),
        )
    )


def _resolve_reads(
    job: TrainingJob, values: dict[str, Any], instance: catalog.InstanceType, warnings: list[str]
) -> None:
    """Take the workload's rate where no rate is given."""
    if job.workload is None or job.read_gb_per_s_per_accelerator is not None:
        return
    workload = catalog.workloads.workloads()[job.workload]
    step = workload.step_time(instance.accelerator_name)
    if step is None:
        raise InvalidJobError(
            f"workload must have a step time for {instance.accelerator_name}, got: {job.workload!r}, measured on "
            f"{', '.join(workload.step_seconds)} only. Give read_gb_per_s_per_accelerator instead."
        )
    if not step.measured:
        warnings.append(
            f"{job.workload} was not measured on {instance.accelerator_name}: its read rate is that of {step.column}."
        )
    values["read_gb_per_s_per_accelerator"] = workload.sample_bytes * workload.samples_per_step / step.seconds / GB


def _check_network_path(job: TrainingJob, instance: catalog.InstanceType, region: catalog.Region) -> None:
    path = job.network_path
    if path not in ("efa", "efa-gds"):
        return
    way_out = "Use ena, or leave it out."
    if not instance.efa_for_lustre or (path == "efa-gds" and not instance.gds):
        raise InvalidJobError(
            f"network_path must be ena or ena-multi-ip on {instance.name}, which does not reach FSx for Lustre over "
            f"{path}, got: {path!r}. {way_out}"
        )
    if not region.lustre_efa:
        raise InvalidJobError(
            f"network_path must be ena or ena-multi-ip in {region.name}, where file systems have no EFA, "
            f"got: {path!r}. {way_out}"
        )
    connections = catalog.lustre.client_limits().efa_connections
    if job.instances > connections:
        raise InvalidJobError(
            f"network_path must be ena or ena-multi-ip above {connections} instances, the EFA connections of a file "
            f"system, got: {path!r}. {way_out}"
        )
    if job.lustre_deployment_type not in (None, "PERSISTENT_2"):
        raise InvalidJobError(
            f"network_path must be ena or ena-multi-ip with {job.lustre_deployment_type}, because EFA needs "
            f"PERSISTENT_2, got: {path!r}. {way_out}"
        )


def _check_lustre_deployment_type(job: TrainingJob, region: catalog.Region) -> None:
    kind = job.lustre_deployment_type
    if kind is None or kind in region.lustre_deployment_types:
        return
    if not region.lustre_deployment_types:
        raise InvalidJobError(
            f"lustre_deployment_type must be left out in {region.name}, which has no fsx-lustre, got: {kind!r}."
        )
    allowed = ", ".join(region.lustre_deployment_types)
    raise InvalidJobError(f"lustre_deployment_type must be one of {allowed} in {region.name}, got: {kind!r}.")
