"""Security group rules by group id, both ways, each a resource of its own.

Rules that name an address range do not count for EFA, and CDK's `allow_all_outbound` silently drops group-to-group
egress; so every rule here is an L1 resource that others can depend on (FSx checks the rules when it creates a file
system, and fails on "port 988" if one of them is not there yet).
"""

from __future__ import annotations

from aws_cdk import aws_ec2 as ec2
from constructs import Construct

_ALL_PROTOCOLS = "-1"
_TCP = "tcp"


class SecurityGroupRules(Construct):
    """A set of group-to-group rules; depend on it to wait for every one of them.

    Parameters
    ----------
    scope, id
        Where in the construct tree: the rules belong to the scope's stack, whatever stack the groups are in.
    tcp_ports
        (first, last) of each TCP port range to open; None opens everything, as EFA demands.
    description
        What the rules are for, as it appears in the console.

    Attributes
    ----------
    rules
        The rules made so far.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        tcp_ports: tuple[tuple[int, int], ...] | None,
        description: str,
    ) -> None:
        super().__init__(scope, id)
        self._tcp_ports = tcp_ports
        self._description = description
        self._pairs: set[frozenset[str]] = set()
        self.rules: list[ec2.CfnSecurityGroupEgress | ec2.CfnSecurityGroupIngress] = []

    def allow_both_ways(self, name: str, *, group: ec2.ISecurityGroup, peer: ec2.ISecurityGroup) -> None:
        """Let `group` and `peer` open connections to each other; `group` may be its own `peer`.

        What is allowed already is left as it is: EC2 refuses a rule that a group has.
        """
        pair = frozenset((group.security_group_id, peer.security_group_id))
        if pair in self._pairs:
            return
        self._pairs.add(pair)
        for label, protocol, first, last in self._ranges():
            self._allow(f"{name}{label}", source=group, destination=peer, protocol=protocol, first=first, last=last)
            if len(pair) > 1:
                self._allow(
                    f"{name}Back{label}", source=peer, destination=group, protocol=protocol, first=first, last=last
                )

    def _ranges(self) -> list[tuple[str, str, int | None, int | None]]:
        if self._tcp_ports is None:
            return [("All", _ALL_PROTOCOLS, None, None)]
        return [(f"Tcp{first}", _TCP, first, last) for first, last in self._tcp_ports]

    def _allow(
        self,
        name: str,
        *,
        source: ec2.ISecurityGroup,
        destination: ec2.ISecurityGroup,
        protocol: str,
        first: int | None,
        last: int | None,
    ) -> None:
        egress = ec2.CfnSecurityGroupEgress(
            self,
            f"{name}Egress",
            group_id=source.security_group_id,
            destination_security_group_id=destination.security_group_id,
            ip_protocol=protocol,
            from_port=first,
            to_port=last,
            description=self._description,
        )
        ingress = ec2.CfnSecurityGroupIngress(
            self,
            f"{name}Ingress",
            group_id=destination.security_group_id,
            source_security_group_id=source.security_group_id,
            ip_protocol=protocol,
            from_port=first,
            to_port=last,
            description=self._description,
        )
        self.rules += [egress, ingress]


def rules_description(*, efa_enabled: bool) -> str:
    """Return what the rules of a file system are for."""
    return "FSx for Lustre over EFA" if efa_enabled else "FSx for Lustre over TCP"
