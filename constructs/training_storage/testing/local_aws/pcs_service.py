"""The API of AWS PCS for what CloudFormation made: clusters and node groups, read and scaled. No node ever runs."""

import datetime as dt
import json
from collections.abc import Callable, Mapping
from typing import Any

from training_storage.testing.local_aws.registry_resource import Behaviour, Made, Place
from training_storage.testing.local_aws.registry_schema import schema_for
from training_storage.testing.local_aws.resource_attributes import new_id, read_only_attributes

TARGET_PREFIX = "AWSParallelComputingService"
_CLUSTER, _NODE_GROUP = "AWS::PCS::Cluster", "AWS::PCS::ComputeNodeGroup"

Record = dict[str, Any]


class PcsError(Exception):
    """What the service answers."""

    def __init__(self, code: str, message: str, **members: str) -> None:
        super().__init__(message)
        self.code, self.message, self.members = code, message, members


class PcsService:
    """The clusters and node groups of every account and Region of one local server, by ARN."""

    def __init__(self, here: Callable[[], tuple[str, str]]) -> None:
        """Take what tells account and Region of the present request."""
        self._here = here
        self._records: dict[str, Record] = {}
        self._operations: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
            "GetCluster": self._get_cluster,
            "ListClusters": self._list_clusters,
            "GetComputeNodeGroup": self._get_node_group,
            "ListComputeNodeGroups": self._list_node_groups,
            "UpdateComputeNodeGroup": self._update_node_group,
        }

    def behaviours(self) -> dict[str, Behaviour]:
        """Return what CloudFormation does with the two types beyond recording them."""
        return {
            kind: Behaviour(create=self._creating(kind), delete=self._delete, update=self._change)
            for kind in (_CLUSTER, _NODE_GROUP)
        }

    def reset(self) -> None:
        """Forget everything."""
        self._records.clear()

    def answer(self, target: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Answer one HTTP request of the JSON protocol."""
        headers = {"Content-Type": "application/x-amz-json-1.0"}
        try:
            content = self._call(target.rsplit(".", 1)[-1], json.loads(body or b"{}"))
        except PcsError as error:
            headers["x-amzn-ErrorType"] = error.code
            content = {"__type": error.code, "message": error.message, **error.members}
            return 400, headers, json.dumps(content).encode()
        return 200, headers, json.dumps(content).encode()

    def _call(self, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        handler = self._operations.get(operation)
        if handler is None:
            raise PcsError("UnsupportedOperation", f"The local AWS PCS does not serve {operation}.")
        return handler(request)

    # ---- CloudFormation ----

    def _creating(self, kind: str) -> Callable[[Mapping[str, Any], Place], Made]:
        def create(properties: Mapping[str, Any], place: Place) -> Made:
            schema = schema_for(type_name=kind, region=place.region)
            if schema is None:
                message = f"{kind} is not offered in {place.region}"
                raise ValueError(message)
            identifier = new_id(kind)
            attributes = read_only_attributes(
                schema=schema,
                identifier=identifier,
                account=place.account,
                region=place.region,
                properties=properties,
            )
            arn = str(attributes["Arn"])
            self._records[arn] = {
                "kind": kind,
                "here": (place.account, place.region),
                "id": identifier,
                "arn": arn,
                "name": str(properties.get("Name") or f"{place.stack_name}-{place.logical_id}"),
                "properties": dict(properties),
                "createdAt": _now(),
                "modifiedAt": _now(),
            }
            return Made(physical_id=arn, attributes=attributes)

        return create

    def _delete(self, physical_id: str, _properties: Mapping[str, Any]) -> None:
        self._records.pop(physical_id, None)

    def _change(self, physical_id: str, _old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        self._records[physical_id].update(properties=dict(new), modifiedAt=_now())

    # ---- API ----

    def _get_cluster(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        record = self._find(_CLUSTER, request["clusterIdentifier"])
        properties = record["properties"]
        networking = properties["Networking"]
        return {
            "cluster": {
                **_summary(record),
                "scheduler": {
                    "type": properties["Scheduler"]["Type"],
                    "version": properties["Scheduler"]["Version"],
                },
                "size": properties["Size"],
                "networking": {
                    "subnetIds": networking.get("SubnetIds", []),
                    "securityGroupIds": networking.get("SecurityGroupIds", []),
                },
            }
        }

    def _list_clusters(self, _request: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"clusters": [_summary(record) for record in self._of(_CLUSTER)]}

    def _get_node_group(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"computeNodeGroup": self._node_group(self._group_of(request))}

    def _list_node_groups(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        cluster = self._find(_CLUSTER, request["clusterIdentifier"])
        return {
            "computeNodeGroups": [
                {**_summary(record), "clusterId": cluster["id"]} for record in self._groups(cluster["id"])
            ]
        }

    def _update_node_group(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        record = self._group_of(request)
        scaling = request.get("scalingConfiguration")
        if scaling is not None:
            if scaling["minInstanceCount"] > scaling["maxInstanceCount"]:
                raise PcsError(
                    "ValidationException",
                    "minInstanceCount must not be greater than maxInstanceCount.",
                    reason="fieldValidationFailed",
                )
            record["properties"]["ScalingConfiguration"] = {
                "MinInstanceCount": scaling["minInstanceCount"],
                "MaxInstanceCount": scaling["maxInstanceCount"],
            }
            record["modifiedAt"] = _now()
        return {"computeNodeGroup": self._node_group(record)}

    def _node_group(self, record: Record) -> Mapping[str, Any]:
        properties = record["properties"]
        template, scaling = properties["CustomLaunchTemplate"], properties["ScalingConfiguration"]
        return {
            **_summary(record),
            "clusterId": properties["ClusterId"],
            "subnetIds": properties["SubnetIds"],
            "customLaunchTemplate": {"id": template.get("TemplateId"), "version": str(template["Version"])},
            "iamInstanceProfileArn": properties["IamInstanceProfileArn"],
            "scalingConfiguration": {
                "minInstanceCount": int(scaling["MinInstanceCount"]),
                "maxInstanceCount": int(scaling["MaxInstanceCount"]),
            },
            "instanceConfigs": [{"instanceType": row.get("InstanceType")} for row in properties["InstanceConfigs"]],
        }

    def _group_of(self, request: Mapping[str, Any]) -> Record:
        cluster = self._find(_CLUSTER, request["clusterIdentifier"])
        wanted = request["computeNodeGroupIdentifier"]
        for record in self._groups(cluster["id"]):
            if wanted in (record["id"], record["name"]):
                return record
        raise _not_found("ComputeNodeGroup", wanted)

    def _groups(self, cluster_id: str) -> list[Record]:
        return [record for record in self._of(_NODE_GROUP) if record["properties"]["ClusterId"] == cluster_id]

    def _of(self, kind: str) -> list[Record]:
        here = self._here()
        return [record for record in self._records.values() if record["kind"] == kind and record["here"] == here]

    def _find(self, kind: str, wanted: str) -> Record:
        for record in self._of(kind):
            if wanted in (record["id"], record["name"]):
                return record
        raise _not_found("Cluster", wanted)


def _summary(record: Record) -> dict[str, Any]:
    return {name: record[name] for name in ("name", "id", "arn", "createdAt", "modifiedAt")} | {"status": "ACTIVE"}


def _not_found(kind: str, wanted: str) -> PcsError:
    message = f"The {kind} {wanted} doesn't exist."
    return PcsError("ResourceNotFoundException", message, resourceId=wanted, resourceType=kind)


def _now() -> str:
    return dt.datetime.now(tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
