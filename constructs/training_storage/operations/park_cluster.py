"""The nodes of a job's cluster: none may start, those that run end, and how it is all taken back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

from botocore.exceptions import ClientError

from training_storage.operations.final_export.calls import ask
from training_storage.operations.final_export.refusal import NotNowError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: Instances that may still write. Only one that is `terminated` does not.
_ALIVE = ("pending", "running", "shutting-down", "stopping")
#: Instances of one TerminateInstances; EC2 takes more, but asks to group them.
_BATCH = 500
_PCS_BUSY = ("CREATING", "UPDATING")


@dataclass(frozen=True, kw_only=True)
class Group:
    """A node group with its limits of the template; `login` for the nodes that people log in to."""

    id: str
    minimum: int
    maximum: int
    login: bool


@dataclass(frozen=True, kw_only=True)
class Description:
    """A cluster: `tag` is on every instance that the engine starts, with the id of its group."""

    engine: str
    cluster_id: str
    tag: str
    groups: tuple[Group, ...]

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what the construct wrote."""
        record = json.loads(text)
        groups = tuple(
            Group(
                id=row["id"],
                minimum=int(row["minimum"]),
                maximum=int(row["maximum"]),
                login=str(row["login"]) == "True",
            )
            for row in record["groups"]
        )
        return cls(engine=record["engine"], cluster_id=record["cluster_id"], tag=record["tag"], groups=groups)


class Engine(Protocol):
    """Sets the limits of a group."""

    def set_limits(self, group: Group, *, minimum: int, maximum: int) -> bool:
        """Set them if they are not so already; return whether they are so now, for good."""


class PcsEngine:
    """AWS PCS."""

    def __init__(self, pcs: Any, cluster_id: str) -> None:  # noqa: ANN401 - boto3 clients have no type
        self._pcs = pcs
        self._cluster_id = cluster_id

    def set_limits(self, group: Group, *, minimum: int, maximum: int) -> bool:
        """Set the limits; a group that is changing takes no change."""
        name = {"clusterIdentifier": self._cluster_id, "computeNodeGroupIdentifier": group.id}
        found = ask("pcs:GetComputeNodeGroup", self._pcs.get_compute_node_group, **name)["computeNodeGroup"]
        if found["status"] in _PCS_BUSY:
            return False
        wanted = {"minInstanceCount": minimum, "maxInstanceCount": maximum}
        if found["scalingConfiguration"] == wanted:
            return True

        def update(**request: Any) -> Any:  # noqa: ANN401 - as boto3's
            try:
                return self._pcs.update_compute_node_group(**request)
            except ClientError as error:
                if error.response["Error"].get("Code") == "ConflictException":
                    raise NotNowError(f"node group {group.id} is being changed") from error
                raise

        ask("pcs:UpdateComputeNodeGroup", update, **name, scalingConfiguration=wanted)
        return False


class AutoScalingEngine:
    """EC2 Auto Scaling."""

    def __init__(self, autoscaling: Any) -> None:  # noqa: ANN401 - boto3 clients have no type
        self._autoscaling = autoscaling

    def set_limits(self, group: Group, *, minimum: int, maximum: int) -> bool:
        """Set the limits. With a maximum of 0 no node is wanted either; otherwise as many as before."""
        desired = {"DesiredCapacity": 0} if maximum == 0 else {}
        ask(
            "autoscaling:UpdateAutoScalingGroup",
            self._autoscaling.update_auto_scaling_group,
            AutoScalingGroupName=group.id,
            MinSize=minimum,
            MaxSize=maximum,
            **desired,
        )
        return True


class Cluster:
    """Stops and reopens a cluster. Every method may be called again at any time.

    Parameters
    ----------
    description
        The cluster.
    client
        From a service's name to its boto3 client.
    """

    def __init__(self, description: Description, *, client: Callable[[str], Any]) -> None:
        self._description = description
        self._ec2 = client("ec2")
        self._engine: Engine = (
            PcsEngine(client("pcs"), description.cluster_id)
            if description.engine == "pcs"
            else AutoScalingEngine(client("autoscaling"))
        )

    @property
    def has_login(self) -> bool:
        """Whether there are nodes that people log in to."""
        return any(group.login for group in self._description.groups)

    def close(self, *, login: bool) -> bool:
        """Let no node of one kind start any more; return whether that has taken effect."""
        return self._set((group, 0, 0) for group in self._of(login=login))

    def reopen(self) -> bool:
        """Give all groups the limits of the template; return whether that has taken effect."""
        return self._set((group, group.minimum, group.maximum) for group in self._description.groups)

    def nodes(self, *, login: bool) -> list[str]:
        """Return the ids of the instances of one kind that may still write."""
        values = [group.id for group in self._of(login=login)]
        if not values:
            return []
        found: list[str] = []
        request: dict[str, Any] = {
            "Filters": [
                {"Name": f"tag:{self._description.tag}", "Values": values},
                {"Name": "instance-state-name", "Values": list(_ALIVE)},
            ]
        }
        while True:
            page = ask("ec2:DescribeInstances", self._ec2.describe_instances, **request)
            found += [one["InstanceId"] for row in page["Reservations"] for one in row["Instances"]]
            if not page.get("NextToken"):
                return found
            request["NextToken"] = page["NextToken"]

    def end(self, nodes: list[str]) -> None:
        """End instances that did not go by themselves."""
        for start in range(0, len(nodes), _BATCH):
            batch = nodes[start : start + _BATCH]
            ask("ec2:TerminateInstances", self._ec2.terminate_instances, InstanceIds=batch)

    def _of(self, *, login: bool) -> list[Group]:
        return [group for group in self._description.groups if group.login == login]

    def _set(self, limits: Iterable[tuple[Group, int, int]]) -> bool:
        # All of them, also if one is not there yet: nodes of the others must not start meanwhile.
        done = [self._engine.set_limits(group, minimum=minimum, maximum=maximum) for group, minimum, maximum in limits]
        return all(done)
