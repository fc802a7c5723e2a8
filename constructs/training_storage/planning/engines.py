"""Which engine starts the nodes of a plan: the default, its reason, and what each engine refuses.

Engines are named here and built in `training_storage.gpu_cluster`; a test holds the two lists together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from training_storage.planning import catalog
from training_storage.planning.catalog import images
from training_storage.planning.errors import InvalidJobError
from training_storage.planning.text import SUMMARY_WIDTH, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable

    from training_storage.planning.catalog import InstanceType
    from training_storage.planning.plan import StoragePlan

#: What each engine is, in words; the first is the default. A plan's prices know the nodes and not the engine.
ENGINE_WORDS: Final = {
    "pcs": "AWS PCS, managed Slurm; its fee, its login node and /home are not in the prices",
    "ec2": "EC2 Auto Scaling, for a scheduler of your own",
}


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """An engine, and why it is not the default one.

    Parameters
    ----------
    name
        As in `-c engine=`.
    note
        Why the default cannot serve the plan, in a clause; None where it does, and where the engine was asked for.
    """

    name: str
    note: str | None = None

    def words(self) -> str:
        """Return the engine and the reason for it, in a sentence."""
        reason = "" if self.note is None else f". Not pcs: {self.note}"
        return f"{self.name} ({ENGINE_WORDS[self.name]}){reason}"

    def lines(self) -> tuple[str, ...]:
        """Return the lines of a plan's summary."""
        return tuple(wrapped(self.words(), first="  engine   ", width=SUMMARY_WIDTH))


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """What an engine is asked to run.

    Parameters
    ----------
    instances, instance_type
        How many of which type train at most.
    region, zone_id
        Where; None if not known yet.
    ami_parameter
        SSM parameter with the nodes' image; None for the engine's own.
    """

    instances: int
    instance_type: InstanceType
    region: str | None
    zone_id: str | None = None
    ami_parameter: str | None = None


def choose_engine(plan: StoragePlan, *, engine: str | None = None, ami_parameter: str | None = None) -> EngineChoice:
    """Return the engine for `plan`: the one asked for, else AWS PCS where it can serve the plan, else EC2.

    Parameters
    ----------
    plan
        With its Region, zone, type and number of instances.
    engine
        The one asked for; None to choose.
    ami_parameter
        SSM parameter with the nodes' image; None for the engine's own.

    Raises
    ------
    InvalidJobError
        If the engine asked for cannot serve the plan, naming those that can; or if the image does not suit it.
    """
    nodes = Nodes(
        instances=plan.job.instances,
        instance_type=catalog.instance_type(plan.job.instance_type or ""),
        region=plan.region,
        zone_id=plan.zone_id,
        ami_parameter=ami_parameter,
    )
    if engine is not None:
        check_engine(engine, nodes)
        return EngineChoice(name=engine)
    default = next(iter(ENGINE_WORDS))
    reason = _OBSTACLES[default](nodes)
    if reason is None:
        check_engine(default, nodes)
        return EngineChoice(name=default)
    return EngineChoice(name=_able(nodes)[0], note=reason)


def check_engine(engine: str, nodes: Nodes) -> None:
    """Refuse an engine that cannot run `nodes`.

    Raises
    ------
    InvalidJobError
        Naming the engines that can; or if the image does not suit the engine.
    """
    if engine not in ENGINE_WORDS:
        raise InvalidJobError(f"engine must be one of {', '.join(ENGINE_WORDS)}, got: {engine!r}.")
    reason = _OBSTACLES[engine](nodes)
    if reason is not None:
        raise _refusal(engine, reason, _able(nodes))
    if engine == "pcs" and nodes.ami_parameter is not None and images.lacks_pcs_agent(nodes.ami_parameter):
        # Not a reason to choose another engine unasked: who names an image may not want to lose Slurm over it.
        example = images.pcs_parameter(nodes.instance_type) or "a PCS-ready image"
        raise InvalidJobError(
            f"ami_parameter must name an image with the AWS PCS agent for engine=pcs, got: {nodes.ami_parameter!r}, "
            f"which has none. Build one on {example}, or choose engine=ec2."
        )


def packages_warning(engine: str, instance_type: InstanceType, *, ami_parameter: str | None) -> str | None:
    """Return why nodes would not get ready in a network without a way out, in a clause; None where they do.

    Parameters
    ----------
    engine, instance_type
        What starts which nodes.
    ami_parameter
        SSM parameter with the nodes' image; None for the engine's own.
    """
    own = images.pcs_parameter(instance_type) if engine == "pcs" else images.default_parameter(instance_type)
    parameter = ami_parameter or own
    if parameter is None or not images.lacks_packages(parameter):
        return None
    others = [] if engine == "ec2" and ami_parameter is None else ["engine=ec2 without ami_parameter (Amazon Linux)"]
    ways_out = " or ".join(["ami_parameter with an image that has both", "egress=nat", *others])
    return (
        f"egress=isolated: {parameter} lacks Mountpoint for S3 and may lack Lustre modules for its kernel, and their "
        f"packages are not reached without a way out, so nodes would never get ready. Give {ways_out}"
    )


def check_region(engine: str, region: str) -> None:
    """Refuse an engine that is not in a Region, whatever the job.

    Raises
    ------
    InvalidJobError
        Naming the engines that are there.
    """
    absent = _absent(engine, region)
    if absent is not None:
        raise _refusal(engine, absent, [name for name in ENGINE_WORDS if _absent(name, region) is None])


def _able(nodes: Nodes) -> list[str]:
    return [name for name, obstacle in _OBSTACLES.items() if obstacle(nodes) is None]


def _refusal(engine: str, reason: str, others: list[str]) -> InvalidJobError:
    return InvalidJobError(f"engine must be {' or '.join(others)} here, got: {engine!r}: {reason}.")


def _absent(engine: str, region: str) -> str | None:
    return f"AWS PCS is not in {region}" if engine == "pcs" and not catalog.region(region).pcs else None


def _pcs_obstacle(nodes: Nodes) -> str | None:
    """Return why AWS PCS cannot run `nodes`, in a clause; None if it can."""
    limits = catalog.pcs()
    absent = None if nodes.region is None else _absent("pcs", nodes.region)
    if absent is not None:
        return absent
    # CreateCluster: subnets cannot be in Outposts, Wavelength or a Local Zone.
    if nodes.zone_id is not None and nodes.zone_id.count("-") > 1:
        return f"AWS PCS does not work in Local Zones such as {nodes.zone_id}"
    if limits.size_for(nodes.instances) is None:
        return (
            f"AWS PCS has at most {limits.instances_maximum} instances beside its login node "
            f"({max(limits.sizes.values())} nodes), and {nodes.instances} train"
        )
    if nodes.ami_parameter is None and images.pcs_parameter(nodes.instance_type) is None:
        return (
            f"no PCS-ready image for {nodes.instance_type.accelerator_name} is published; with one of your own, give "
            "ami_parameter"
        )
    return None


def _no_obstacle(_nodes: Nodes) -> str | None:
    return None


_OBSTACLES: Final[dict[str, Callable[[Nodes], str | None]]] = {"pcs": _pcs_obstacle, "ec2": _no_obstacle}
