"""Make identifiers and read-only attributes in the formats that AWS uses."""

import datetime as dt
import hashlib
import secrets
import string
from collections.abc import Mapping
from typing import Any

from training_storage.testing.local_aws.registry_schema import PropertyPath, RegistrySchema

# Prefixes of ids, as the service documentation and the examples of each API show them.
_ID_PREFIXES = {
    "AWS::EC2::CapacityReservation": "cr-",
    "AWS::EC2::CustomerGateway": "cgw-",
    "AWS::EC2::DHCPOptions": "dopt-",
    "AWS::EC2::EgressOnlyInternetGateway": "eigw-",
    "AWS::EC2::EIP": "eipalloc-",
    "AWS::EC2::EIPAssociation": "eipassoc-",
    "AWS::EC2::FlowLog": "fl-",
    "AWS::EC2::Instance": "i-",
    "AWS::EC2::LaunchTemplate": "lt-",
    "AWS::EC2::NatGateway": "nat-",
    "AWS::EC2::NetworkAcl": "acl-",
    "AWS::EC2::NetworkInterface": "eni-",
    "AWS::EC2::PlacementGroup": "pg-",
    "AWS::EC2::PrefixList": "pl-",
    "AWS::EC2::SecurityGroupEgress": "sgr-",
    "AWS::EC2::SecurityGroupIngress": "sgr-",
    "AWS::EC2::SubnetNetworkAclAssociation": "aclassoc-",
    "AWS::EC2::TransitGateway": "tgw-",
    "AWS::EC2::VPCEndpointService": "vpce-svc-",
    "AWS::EC2::VPCPeeringConnection": "pcx-",
    "AWS::EC2::Volume": "vol-",
    "AWS::FSx::DataRepositoryAssociation": "dra-",
    "AWS::FSx::FileSystem": "fs-",
    "AWS::PCS::Cluster": "pcs_",
    "AWS::PCS::ComputeNodeGroup": "pcs_",
    "AWS::PCS::Queue": "pcs_",
}
_SERVICES_IN_ARNS = {
    "CertificateManager": "acm",
    "CloudWatch": "cloudwatch",
    "ElasticLoadBalancingV2": "elasticloadbalancing",
    "Events": "events",
    "StepFunctions": "states",
}
_RESOURCES_IN_ARNS = {
    "AWS::PCS::ComputeNodeGroup": "computenodegroup",
    "AWS::S3Express::DirectoryBucket": "bucket",
    "AWS::FSx::FileSystem": "file-system",
    "AWS::FSx::DataRepositoryAssociation": "association",
}


def partition_of(region: str) -> str:
    """Return the partition of a Region: aws, aws-cn or aws-us-gov."""
    if region.startswith("cn-"):
        return "aws-cn"
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"


def url_suffix_of(region: str) -> str:
    """Return the DNS suffix of a Region."""
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"


def new_id(type_name: str) -> str:
    """Return a fresh id of the type, such as ``fs-0123456789abcdef0``."""
    if type_name == "AWS::SageMaker::Cluster":
        return "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(12))
    prefix = _ID_PREFIXES.get(type_name)
    if prefix == "pcs_":
        return prefix + "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(10))
    if prefix is None:
        prefix = type_name.rsplit("::", 1)[1].lower() + "-"
    return prefix + secrets.token_hex(9)[:17]


def arn_of(*, type_name: str, identifier: str, account: str, region: str) -> str:
    """Return the ARN of a resource."""
    _, service, resource = type_name.split("::")
    service = _SERVICES_IN_ARNS.get(service, service.lower())
    resource = _RESOURCES_IN_ARNS.get(type_name, resource.lower())
    separator = ":" if type_name == "AWS::CloudWatch::Alarm" else "/"
    return f"arn:{partition_of(region)}:{service}:{region}:{account}:{resource}{separator}{identifier}"


def generated_name(*, schema: RegistrySchema, path: PropertyPath, stack_name: str, logical_id: str, seed: str) -> str:
    """Return the physical name that CloudFormation makes for a resource without one.

    The name keeps to the schema's length, and to lowercase where its pattern has no capitals.
    """
    definition = schema.definition_of(path)
    most = int(definition.get("maxLength", 128))
    suffix = hashlib.sha256(f"{stack_name}/{logical_id}/{seed}".encode()).hexdigest()[:12].upper()
    name = f"{stack_name}-{logical_id}-"[: max(most - len(suffix), 0)] + suffix
    pattern = str(definition.get("pattern", "A-Z"))
    return (name if "A-Z" in pattern or "\\w" in pattern else name.lower())[:most]


def read_only_attributes(
    *, schema: RegistrySchema, identifier: str, account: str, region: str, properties: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a value for each read-only attribute that the schema promises, keyed as Fn::GetAtt names it."""
    arn = arn_of(type_name=schema.type_name, identifier=identifier, account=account, region=region)
    values: dict[str, Any] = {}
    for path in schema.read_only:
        if "*" not in path:
            values[".".join(path)] = _value_of(
                schema=schema, path=path, identifier=identifier, arn=arn, properties=properties
            )
    return values


def _value_of(
    *, schema: RegistrySchema, path: PropertyPath, identifier: str, arn: str, properties: Mapping[str, Any]
) -> Any:  # noqa: ANN401 - an attribute has whatever JSON type the schema says
    name = path[-1]
    if name in properties and len(path) == 1:
        return properties[name]
    definition = schema.definition_of(path)
    kind = definition.get("type", "string")
    kind = kind[0] if isinstance(kind, list) else kind
    empty: dict[str, Any] = {"integer": 0, "number": 0, "boolean": False, "array": [], "object": {}}
    if kind in empty:
        return empty[kind]
    if name.lower().endswith("arn"):
        return arn
    if "enum" in definition:
        return (
            next((value for value in ("ACTIVE", "AVAILABLE", "InService") if value in definition["enum"]), None)
            or (definition["enum"][0])
        )
    if any(word in name for word in ("Time", "Date", "At")) and not name.endswith("Attribute"):
        return dt.datetime.now(tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return identifier[: int(definition.get("maxLength", 2048))]


def generated_id_of(stack_name: str, logical_id: str, seed: str) -> str:
    """Return the name that CloudFormation makes where the service sets no limits of its own."""
    suffix = hashlib.sha256(f"{stack_name}/{logical_id}/{seed}".encode()).hexdigest()[:12].upper()
    return f"{stack_name}-{logical_id}-"[:200] + suffix
