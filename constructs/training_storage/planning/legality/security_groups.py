"""Security groups of an EFA file system, as far as the template makes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from training_storage.planning.legality.finding import Problem, Words, rule
from training_storage.planning.legality.intrinsics import symbol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from training_storage.planning.legality.finding import Finding
    from training_storage.planning.legality.lustre_spec import FileSystem
    from training_storage.planning.legality.template import Stack

_ALL = "-1"


@dataclass(frozen=True, kw_only=True)
class EfaGroups:
    """Whether some group of an EFA file system lets all traffic from itself in, and to itself out."""

    inbound: bool
    outbound: bool


@rule("lustre-efa-security-group", source="FSx guide, limit-access-security-groups; FSx error text (2026-10)")
def efa_group(groups: EfaGroups) -> Iterator[Problem]:
    """Require that a group of an EFA file system allows all traffic with itself, both ways, named by its id."""
    missing = [name for name, there in (("inbound", groups.inbound), ("outbound", groups.outbound)) if not there]
    if missing:
        yield Problem(
            what="security_groups",
            allowed="allow all traffic from and to themselves by group id with EFA",
            got=Words(f"no such {' and '.join(missing)} rule"),
            remedy="add rules of protocol -1 that name the group; CIDR rules do not count",
            location="SecurityGroupIds",
        )


def check_groups(stack: Stack, logical_id: str, system: FileSystem) -> tuple[Finding, ...]:
    """Return what is missing of the groups of a file system with EFA, where the template makes all of them."""
    given = stack.properties(logical_id).get("SecurityGroupIds")
    if system.efa_enabled is not True or not isinstance(given, list) or not given:
        return ()
    made = dict(stack.of_type("AWS::EC2::SecurityGroup"))
    own = [_group_of(item, made) for item in given]
    if any(group is None for group in own):
        return ()
    found = EfaGroups(
        inbound=any(_allows(stack, group, made, inbound=True) for group in own if group),
        outbound=any(_allows(stack, group, made, inbound=False) for group in own if group),
    )
    return tuple(efa_group.findings(found))


def _group_of(value: object, made: Mapping[str, Any]) -> str | None:
    name = symbol(value).removeprefix("${").removesuffix("}").removesuffix(".GroupId")
    return name if name in made else None


def _allows(stack: Stack, group: str, made: Mapping[str, Mapping[str, Any]], *, inbound: bool) -> bool:
    """Whether a rule of `group`, within it or beside it, allows all traffic with itself."""
    kind = "AWS::EC2::SecurityGroupIngress" if inbound else "AWS::EC2::SecurityGroupEgress"
    peer = "SourceSecurityGroupId" if inbound else "DestinationSecurityGroupId"
    within = made[group].get("SecurityGroupIngress" if inbound else "SecurityGroupEgress")
    beside = [rule for _, rule in stack.of_type(kind) if _group_of(rule.get("GroupId"), made) == group]
    rules = [*(within if isinstance(within, list) else []), *beside]
    return any(
        isinstance(rule, Mapping) and str(rule.get("IpProtocol")) == _ALL and _group_of(rule.get(peer), made) == group
        for rule in rules
    )
