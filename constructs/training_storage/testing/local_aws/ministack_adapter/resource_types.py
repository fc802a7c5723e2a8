"""Put every type of the registry into ministack's table of CloudFormation handlers, validated."""

# ruff: noqa: SLF001 - ministack has no public way in; names.py lists what is reached for

import ipaddress
from collections.abc import Callable, Mapping
from typing import Any

from ministack.core import responses
from ministack.services import ec2
from ministack.services.cloudformation import changesets, engine, provisioners, stacks

from training_storage.testing.local_aws import registry_resource
from training_storage.testing.local_aws.fsx.service import FsxService
from training_storage.testing.local_aws.ministack_adapter import ec2_behaviours, express, fsx_behaviours
from training_storage.testing.local_aws.pcs_service import PcsService
from training_storage.testing.local_aws.registry_resource import Behaviour, Place
from training_storage.testing.local_aws.registry_schema import RegistrySchema, known_types, schema_for

_SUBNET = "AWS::EC2::Subnet"
_GROUP = "AWS::EC2::SecurityGroup"
# CloudFormation's own types are the engine's business.
_ENGINE_TYPES = ("AWS::CloudFormation::", "AWS::CDK::")

Handler = dict[str, Any]


class _RegionalHandlers(dict[str, Handler]):
    """A handler table that knows no type which the request's Region does not offer."""

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) and (
            str(key).startswith(_ENGINE_TYPES) or str(key) not in _KNOWN or _schema(str(key)) is not None
        )


_KNOWN = known_types()
# What Fn::GetAtt gives; an update answers it again.
_ATTRIBUTES = responses.AccountRegionScopedDict()


def install(service: FsxService, pcs: PcsService) -> None:
    """Replace the handler table: ministack's own types validated, all other registry types served."""
    own = dict(provisioners._RESOURCE_HANDLERS)
    behaviours: dict[str, Behaviour] = {
        **ec2_behaviours.behaviours(),
        **express.behaviours(),
        **fsx_behaviours.behaviours(service),
        **pcs.behaviours(),
    }
    table = _RegionalHandlers()
    for type_name, handler in own.items():
        table[type_name] = handler if type_name.startswith(_ENGINE_TYPES) else _validated(type_name, handler)
    for type_name in sorted(_KNOWN - set(own)):
        if not type_name.startswith(_ENGINE_TYPES):
            table[type_name] = _from_registry(type_name, behaviours.get(type_name))
    provisioners._RESOURCE_HANDLERS = table
    changesets._RESOURCE_HANDLERS = table
    _replace_on_create_only(set(own), behaviours)


def _schema(type_name: str) -> RegistrySchema | None:
    return schema_for(type_name=type_name, region=str(responses.get_region()))


def _validate(type_name: str, properties: Mapping[str, Any], logical_id: str) -> None:
    registry_resource.validate(
        type_name=type_name,
        properties=_without_no_values(properties),
        region=str(responses.get_region()),
        logical_id=logical_id,
    )


def _without_no_values(value: Any) -> Any:  # noqa: ANN401 - walks JSON
    if isinstance(value, Mapping):
        return {key: _without_no_values(item) for key, item in value.items() if item is not engine._NO_VALUE}
    if isinstance(value, list):
        return [_without_no_values(item) for item in value if item is not engine._NO_VALUE]
    return value


class _SchemaTags(dict[str, tuple[str, str]]):
    """Which property carries a type's tags: ministack's entries, else the registry's.

    Through it the stack's tags and the aws:cloudformation: tags reach every taggable resource. Schemas are read when a
    type is first used: reading all of them takes longer than starting the server.
    """

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - the signature of dict
        found = super().get(key)
        if found is not None or key.startswith(_ENGINE_TYPES):
            return found or default
        schema = _schema(key)
        if schema is None or schema.tag_property is None or key in self.unserved:
            return default
        return schema.tag_property, "map" if schema.tags_are_a_map else "list"

    unserved: frozenset[str] = frozenset()


class _SchemaReplacements(dict[str, tuple[str, ...]]):
    """The properties whose change replaces a resource: ministack's entries, else the registry's createOnly ones."""

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - the signature of dict
        found = super().get(key)
        if found is not None or key.startswith(_ENGINE_TYPES):
            return default if found is None else found
        schema = _schema(key)
        return default if schema is None else schema.replacing_properties


# ---- types that ministack serves itself ---------------------------------------------------------------------------


def _validated(type_name: str, handler: Handler) -> Handler:
    """Wrap ministack's handler: validate, check what it does not, and record what it refuses though AWS serves it."""
    registry = _from_registry(type_name, None)
    wrapped = dict(handler)
    original_create = handler["create"]

    def create(logical_id: str, properties: dict[str, Any], stack_name: str) -> Any:  # noqa: ANN401 - as ministack's
        _validate(type_name, properties, logical_id)
        if _BEYOND_MINISTACK.get(type_name, _never)(properties):
            return registry["create"](logical_id, properties, stack_name)
        _BEFORE_CHANGE.get(type_name, _nothing)(properties)
        _BEFORE_CREATE.get(type_name, _nothing)(properties)
        made = original_create(logical_id, properties, stack_name)
        _AFTER_CREATE.get(type_name, _nothing_after)(made[0], properties)
        return made[0], _with_properties(made[1], properties)

    wrapped["create"] = create
    if "update" in handler:
        original_update = handler["update"]

        def update(physical_id: str, old: dict[str, Any], new: dict[str, Any], stack_name: str, *rest: str) -> Any:  # noqa: ANN401
            if (type_name, physical_id) in _ATTRIBUTES:
                return registry["update"](physical_id, old, new, stack_name, *(rest or (physical_id,)))
            _validate(type_name, new, rest[0] if rest else physical_id)
            _BEFORE_CHANGE.get(type_name, _nothing)(new)
            made = original_update(physical_id, old, new, stack_name, *rest)
            return made[0], _with_properties(made[1], new)

        wrapped["update"] = update
    if "delete" in handler:
        original_delete = handler["delete"]

        def delete(physical_id: str, properties: dict[str, Any], *rest: str) -> Any:  # noqa: ANN401
            if (type_name, physical_id) in _ATTRIBUTES:
                return registry["delete"](physical_id, properties)
            _BEFORE_DELETE.get(type_name, _nothing)(physical_id)
            return original_delete(physical_id, properties, *rest)

        wrapped["delete"] = delete
    return wrapped


def _with_properties(attributes: Mapping[str, Any], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Let Fn::GetAtt read properties too (the CIDR block of a VPC); attributes of the same name win."""
    return {**{name: value for name, value in properties.items() if not isinstance(value, dict)}, **attributes}


def _never(_properties: Mapping[str, Any]) -> bool:
    return False


def _nothing(_value: Any) -> None:  # noqa: ANN401 - takes properties or an id
    """Most types need nothing more."""


def _nothing_after(_physical_id: str, _properties: Mapping[str, Any]) -> None:
    """Most types need nothing more."""


def _check_zone(properties: Mapping[str, Any]) -> None:
    zone_id = properties.get("AvailabilityZoneId")
    if zone_id and ec2._zone_name_for_az_id(zone_id) is None:
        message = f"Value ({zone_id}) for parameter availabilityZoneId is invalid."
        raise ValueError(message)
    if properties.get("VpcId") not in ec2._vpcs:
        message = f"The vpc ID '{properties.get('VpcId')}' does not exist"
        raise ValueError(message)


def _check_range_is_free(properties: Mapping[str, Any]) -> None:
    wanted = ipaddress.ip_network(str(properties.get("CidrBlock")))
    for subnet in ec2._subnets.values():
        if subnet["VpcId"] == properties.get("VpcId") and wanted.overlaps(ipaddress.ip_network(subnet["CidrBlock"])):
            message = f"The CIDR '{wanted}' conflicts with another subnet"
            raise ValueError(message)


def _let_default_group_talk_to_itself(vpc_id: str, _properties: Mapping[str, Any]) -> None:
    # A VPC's default group lets its members reach each other; ministack makes it without that rule.
    group = ec2._security_groups[ec2._vpcs[vpc_id]["DefaultSecurityGroupId"]]
    if not group["IpPermissions"]:
        pair = {"GroupId": group["GroupId"], "UserId": group["OwnerId"]}
        group["IpPermissions"].append(
            {"IpProtocol": "-1", "IpRanges": [], "Ipv6Ranges": [], "PrefixListIds": [], "UserIdGroupPairs": [pair]}
        )


def _note_default_egress(group_id: str, properties: Mapping[str, Any]) -> None:
    if not properties.get("SecurityGroupEgress"):
        ec2_behaviours.mark_default_egress(group_id)


def _check_subnet_unused(physical_id: str) -> None:
    if ec2_behaviours.in_use(kind="subnet", identifier=physical_id):
        message = f"The subnet '{physical_id}' has dependencies and cannot be deleted."
        raise ValueError(message)


def _check_group_unused(physical_id: str) -> None:
    if ec2_behaviours.in_use(kind="security-group", identifier=physical_id):
        message = f"resource {physical_id} has a dependent object"
        raise ValueError(message)


# Properties with which ministack refuses a type that it serves otherwise: metric math.
_BEYOND_MINISTACK: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "AWS::CloudWatch::Alarm": lambda properties: "Metrics" in properties,
}
_BEFORE_CHANGE: dict[str, Callable[[Any], None]] = {_SUBNET: _check_zone}
_BEFORE_CREATE: dict[str, Callable[[Any], None]] = {_SUBNET: _check_range_is_free}
_AFTER_CREATE: dict[str, Callable[[str, Mapping[str, Any]], None]] = {
    "AWS::EC2::VPC": _let_default_group_talk_to_itself,
    _GROUP: _note_default_egress,
}
_BEFORE_DELETE: dict[str, Callable[[Any], None]] = {
    "AWS::S3::Bucket": express.check_empty,
    _SUBNET: _check_subnet_unused,
    _GROUP: _check_group_unused,
}


# ---- types that only the registry knows ---------------------------------------------------------------------------


def _from_registry(type_name: str, behaviour: Behaviour | None) -> Handler:
    def create(logical_id: str, properties: dict[str, Any], stack_name: str) -> tuple[str, dict[str, Any]]:
        schema = _schema(type_name)
        if schema is None:
            message = f"{type_name} is not available in {responses.get_region()}"
            raise ValueError(message)
        properties = _without_no_values(properties)
        _validate(type_name, properties, logical_id)
        place = Place(
            account=str(responses.get_account_id()),
            region=str(responses.get_region()),
            stack_name=stack_name,
            logical_id=logical_id,
            seed=provisioners._NAME_SEED.get(),
        )
        made = registry_resource.create(schema=schema, behaviour=behaviour, properties=properties, place=place)
        attributes = _with_properties(made[1], properties)
        _ATTRIBUTES[type_name, made[0]] = attributes
        return made[0], attributes

    def update(
        physical_id: str, old: dict[str, Any], new: dict[str, Any], _stack_name: str, logical_id: str
    ) -> tuple[str, dict[str, Any]]:
        _validate(type_name, new, logical_id)
        registry_resource.update(
            behaviour=behaviour, physical_id=physical_id, old=_without_no_values(old), new=_without_no_values(new)
        )
        attributes = {**_ATTRIBUTES.get((type_name, physical_id), {})}
        read_only = {name: attributes[name] for name in attributes if name not in old}
        _ATTRIBUTES[type_name, physical_id] = _with_properties(read_only, _without_no_values(new))
        return physical_id, _ATTRIBUTES[type_name, physical_id]

    def delete(physical_id: str, properties: dict[str, Any]) -> None:
        if behaviour is not None:
            behaviour.delete(physical_id, _without_no_values(properties))
        _ATTRIBUTES.pop((type_name, physical_id), None)

    return {"create": create, "update": update, "update_with_logical_id": True, "delete": delete}


def _replace_on_create_only(own: set[str], behaviours: Mapping[str, Behaviour]) -> None:
    """Make the change of a createOnly property a replacement, also where the property is nested."""
    original = provisioners._replacing_change

    def replacing_change(type_name: str, old: dict[str, Any], new: dict[str, Any]) -> bool:
        schema = _schema(type_name)
        if type_name in own:
            replaces = bool(original(type_name, old, new))
        else:
            replaces = schema is not None and registry_resource.replaces(
                schema=schema, behaviour=behaviours.get(type_name), old=old, new=new
            )
        if schema is None or not replaces:
            return replaces
        name = registry_resource.kept_custom_name(schema=schema, old=old, new=new)
        if name is not None:
            message = (
                "CloudFormation cannot update a stack when a custom-named resource requires replacing. "
                f"Rename {name} and update the stack again."
            )
            raise ValueError(message)
        return True

    provisioners._replacing_change = replacing_change
    stacks._replacing_change = replacing_change
    provisioners._REPLACING_PROPERTIES = _SchemaReplacements(provisioners._REPLACING_PROPERTIES)
    tags = _SchemaTags(provisioners._STACK_TAG_PROPERTY)
    # A type of ministack's that is absent from its own table keeps no tags.
    tags.unserved = frozenset(own)
    provisioners._STACK_TAG_PROPERTY = tags
