"""The FSx types of CloudFormation: the same code, and so the same refusals, as the FSx API."""

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from training_storage.testing.local_aws.fsx import associations, file_systems
from training_storage.testing.local_aws.fsx.errors import FsxError
from training_storage.testing.local_aws.fsx.service import FsxService
from training_storage.testing.local_aws.registry_resource import Behaviour, Made

_LUSTRE = "LustreConfiguration"
# The registry schema lists neither: the CloudFormation documentation marks their change as a replacement.
_DOCUMENTED_REPLACEMENTS = (
    ("FileSystemTypeVersion",),
    (_LUSTRE, "DeploymentType"),
    (_LUSTRE, "PerUnitStorageThroughput"),
    (_LUSTRE, "DriveCacheType"),
    (_LUSTRE, "ImportPath"),
    (_LUSTRE, "ExportPath"),
    (_LUSTRE, "ImportedFileChunkSize"),
    (_LUSTRE, "CopyTagsToBackups"),
)


def behaviours(service: FsxService) -> dict[str, Behaviour]:
    """Return the behaviour of file systems and data repository associations."""
    return {
        "AWS::FSx::FileSystem": Behaviour(
            create=_answering(lambda properties, _place: _create_file_system(service, properties)),
            update=_answering(lambda pid, old, new: _update_file_system(service, pid, old, new)),
            delete=_answering(lambda pid, _properties: _delete_file_system(service, pid)),
            replacing=_DOCUMENTED_REPLACEMENTS,
        ),
        "AWS::FSx::DataRepositoryAssociation": Behaviour(
            create=_answering(lambda properties, _place: _create_association(service, properties)),
            update=_answering(lambda pid, _old, new: _update_association(service, pid, new)),
            delete=_answering(lambda pid, _properties: _delete_association(service, pid)),
        ),
    }


def _answering(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a refusal of the service into the reason that CloudFormation shows for the resource."""

    def call(*arguments: object) -> Any:  # noqa: ANN401 - as the wrapped function
        try:
            return function(*arguments)
        except FsxError as error:
            token = secrets.token_hex(16)
            code = "NotFound" if error.code.endswith("NotFound") else "InvalidRequest"
            message = (
                f'Resource handler returned message: "{error.message} (Service: Fsx, Status Code: 400, '
                f'Error Code: {error.code})" (RequestToken: {token}, HandlerErrorCode: {code})'
            )
            raise ValueError(message) from error

    return call


def _create_file_system(service: FsxService, properties: Mapping[str, Any]) -> Made:
    with service.lock:
        store = service.store()
        store.tick()
        record = file_systems.create(
            store=store, surroundings=service.surroundings, request=_typed(properties), at_once=True
        )
    return Made(
        physical_id=record["FileSystemId"],
        attributes={
            "Id": record["FileSystemId"],
            "DNSName": record["DNSName"],
            "LustreMountName": record["LustreConfiguration"]["MountName"],
            "ResourceARN": record["ResourceARN"],
            "RootVolumeId": "",
        },
    )


def _update_file_system(service: FsxService, physical_id: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    old, new = _typed(old), _typed(new)
    if old.get("StorageType") != new.get("StorageType"):
        raise FsxError("BadRequest", "StorageType cannot be updated.")
    old_lustre, new_lustre = old.get(_LUSTRE) or {}, new.get(_LUSTRE) or {}
    request: dict[str, Any] = {"FileSystemId": physical_id}
    changed = {name: value for name, value in new_lustre.items() if old_lustre.get(name) != value}
    if changed:
        request[_LUSTRE] = changed
    if old.get("StorageCapacity") != new.get("StorageCapacity"):
        request["StorageCapacity"] = new.get("StorageCapacity")
    with service.lock:
        store = service.store()
        store.tick()
        record = file_systems.find(store, physical_id)
        if len(request) > 1:
            file_systems.update(record=record, request=request)
        record["Tags"] = [dict(tag) for tag in new.get("Tags") or []]


def _delete_file_system(service: FsxService, physical_id: str) -> None:
    with service.lock:
        store = service.store()
        store.tick()
        record = store.file_systems.get(physical_id)
        if record is not None:
            file_systems.delete(store=store, surroundings=service.surroundings, record=record, at_once=True)


def _create_association(service: FsxService, properties: Mapping[str, Any]) -> Made:
    with service.lock:
        store = service.store()
        store.tick()
        record = associations.create(
            store=store,
            surroundings=service.surroundings,
            file_system=file_systems.find(store, properties["FileSystemId"]),
            request=_typed(properties),
            at_once=True,
        )
    return Made(
        physical_id=record["AssociationId"],
        attributes={"AssociationId": record["AssociationId"], "ResourceARN": record["ResourceARN"]},
    )


def _update_association(service: FsxService, physical_id: str, new: Mapping[str, Any]) -> None:
    with service.lock:
        store = service.store()
        store.tick()
        record = associations.find(store, physical_id)
        settings = _typed(new)
        associations.update(store=store, record=record, request={"S3": {}, **settings}, at_once=True)
        record["S3"] = {name: policy for name, policy in record["S3"].items() if name in (settings.get("S3") or {})}
        record["Tags"] = [dict(tag) for tag in settings.get("Tags") or []]


def _delete_association(service: FsxService, physical_id: str) -> None:
    with service.lock:
        store = service.store()
        store.tick()
        record = store.associations.get(physical_id)
        if record is not None:
            associations.delete(store=store, record=record, at_once=True)


_BOOLEANS = {"EfaEnabled", "CopyTagsToBackups", "BatchImportMetaDataOnCreate"}
_INTEGERS = {
    "AutomaticBackupRetentionDays",
    "ImportedFileChunkSize",
    "Iops",
    "PerUnitStorageThroughput",
    "SizeGiB",
    "StorageCapacity",
    "ThroughputCapacity",
}


def _typed(value: Any, name: str = "") -> Any:  # noqa: ANN401 - walks JSON
    """Convert the scalars that a template may carry as text."""
    if isinstance(value, Mapping):
        return {key: _typed(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_typed(item) for item in value]
    if name in _BOOLEANS:
        return str(value).lower() == "true"
    return int(value) if name in _INTEGERS else value
