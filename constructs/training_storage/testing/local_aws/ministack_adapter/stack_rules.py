"""Where ministack's stack operations differ from CloudFormation's: exports in use, deletion, clean-up."""

# ruff: noqa: SLF001 - ministack has no public way in; names.py lists what is reached for

import asyncio
import contextvars
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ministack.core import responses
from ministack.services import cloudformation
from ministack.services.cloudformation import handlers, provisioners, stacks

from training_storage.testing.local_aws.ministack_adapter import creation_order

# (type, physical id, properties, stack name, logical id), as ministack hands them to a deletion.
_Arguments = tuple[str, str, object, str, str]
_Delete = Callable[..., None]
_STACK = "AWS::CloudFormation::Stack"
# AWS tries a deletion in the clean-up of an update three times, then skips it and completes the update.
CLEANUP_ATTEMPTS = 3

_importing_names = handlers._imported_export_names
_HIDE_IMPORTS: contextvars.ContextVar[bool] = contextvars.ContextVar("training_storage_hide_imports", default=False)


def install() -> None:
    """Replace the operations."""
    _protect_exports()
    _leave_dependencies_of_failures()
    _retry_cleanup()


# ---- exports ------------------------------------------------------------------------------------------------------


def importers_of(export_name: str, *, besides: str) -> list[str]:
    """Return the names of the stacks that import an export."""
    return sorted(
        name
        for name, stack in cloudformation._stacks.items()
        if name != besides
        and stack.get("StackStatus") not in ("DELETE_COMPLETE", "REVIEW_IN_PROGRESS", "ROLLBACK_COMPLETE")
        and export_name in _importing_names(stack, name)
    )


def _exports_of(stack_id: str) -> dict[str, str]:
    return {
        name: str(export["Value"])
        for name, export in cloudformation._exports.items()
        if export.get("StackId") == stack_id
    }


def _protect_exports() -> None:
    original_outputs = stacks._resolve_stack_outputs
    original_delete = handlers._delete_stack

    def resolve_stack_outputs(*arguments: Any) -> Any:  # noqa: ANN401 - as ministack's
        stack_name, stack_id = arguments[-2:]
        outputs, exports = original_outputs(*arguments)
        before = _exports_of(stack_id)
        for name, value in before.items():
            users = importers_of(name, besides=stack_name)
            if users and name not in exports:
                message = f"Export {name} cannot be deleted as it is in use by {' and '.join(users)}"
                raise ValueError(message)
            if users and exports[name]["Value"] != value:
                message = f"Cannot update export {name} as it is in use by {' and '.join(users)}"
                raise ValueError(message)
        for name, export in exports.items():
            owner = cloudformation._exports.get(name)
            if owner is not None and owner["StackId"] != stack_id:
                other = owner["StackId"].split("/")[1]
                message = f"Export with name {name} is already exported by stack {other}"
                raise ValueError(message)
            del export
        for name in set(before) - set(exports):
            cloudformation._exports.pop(name, None)
        return outputs, exports

    def delete_stack(parameters: Any) -> Any:  # noqa: ANN401 - as ministack's
        # ministack answers this call with an error of its own; AWS accepts it and lets the operation fail.
        token = _HIDE_IMPORTS.set(True)
        try:
            return original_delete(parameters)
        finally:
            _HIDE_IMPORTS.reset(token)

    def imported_export_names(stack: Any, name: str) -> set[str]:  # noqa: ANN401 - as ministack's
        return set() if _HIDE_IMPORTS.get() else set(_importing_names(stack, name))

    stacks._resolve_stack_outputs = resolve_stack_outputs
    handlers._imported_export_names = imported_export_names
    handlers._delete_stack = delete_stack
    handlers._ACTION_HANDLERS["DeleteStack"] = delete_stack


# ---- deletion of a stack ------------------------------------------------------------------------------------------


def _leave_dependencies_of_failures() -> None:
    original = stacks._delete_stack_async

    async def delete_stack_async(
        stack_name: str, stack_id: str, retain_resources: Iterable[str] = (), *, force: bool = False
    ) -> None:
        stack = cloudformation._stacks.get(stack_name)
        if stack is None:
            return
        blocked = _export_in_use(stack_name, stack_id)
        if blocked is not None:
            _refuse_deletion(stack, blocked)
        elif force:
            await original(stack_name, stack_id, retain_resources, force=True)
        else:
            await _delete(stack, frozenset(retain_resources))

    stacks._delete_stack_async = delete_stack_async
    handlers._delete_stack_async = delete_stack_async


def _export_in_use(stack_name: str, stack_id: str) -> str | None:
    for name in sorted(_exports_of(stack_id)):
        users = importers_of(name, besides=stack_name)
        if users:
            return f"Export {name} cannot be deleted as it is in use by {' and '.join(users)}"
    return None


def _refuse_deletion(stack: dict[str, Any], reason: str) -> None:
    """AWS leaves the stack in the state it had, with the reason in an event of that state."""
    status = stack["StackStatus"]
    stack["StackStatusReason"] = reason
    name, stack_id = stack["StackName"], stack["StackId"]
    stacks._add_event(stack_id, name, name, _STACK, "DELETE_IN_PROGRESS", "User Initiated", stack_id)
    stacks._add_event(stack_id, name, name, _STACK, status, reason, stack_id)


async def _delete(stack: dict[str, Any], retained: frozenset[str]) -> None:
    """Delete a stack's resources, dependents first; leave whatever a failed one depends on."""
    name, stack_id = stack["StackName"], stack["StackId"]
    template = stack.get("_template") or {}
    definitions = template.get("Resources", {})
    resources: dict[str, Any] = stack.get("_resources", {})
    _set_status(stack, "DELETE_IN_PROGRESS")
    failed: list[str] = []
    for logical_id in _deletion_order(definitions, resources, stack.get("_conditions", {})):
        kept_for_failed = stacks._with_dependencies(failed, definitions, set(resources))
        if logical_id in kept_for_failed:
            continue
        record = resources[logical_id]
        kind, physical_id = record.get("ResourceType", ""), record.get("PhysicalResourceId", "")
        policy = stacks._resource_policy(
            definitions.get(logical_id),
            "DeletionPolicy",
            resources,
            stack.get("_resolved_params", {}),
            stack.get("_conditions", {}),
            template.get("Mappings", {}),
            name,
            stack_id,
        )
        if policy in stacks._RETAINING_POLICIES or logical_id in retained:
            stacks._add_event(stack_id, name, logical_id, kind, "DELETE_SKIPPED", physical_id=physical_id)
            del resources[logical_id]
            continue
        stacks._add_event(stack_id, name, logical_id, kind, "DELETE_IN_PROGRESS", physical_id=physical_id)
        try:
            await _delete_one(name, logical_id, record, policy)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is the resource's failure
            record.update(ResourceStatus="DELETE_FAILED", ResourceStatusReason=str(error))
            stacks._add_event(stack_id, name, logical_id, kind, "DELETE_FAILED", str(error), physical_id)
            failed.append(logical_id)
            continue
        stacks._add_event(stack_id, name, logical_id, kind, "DELETE_COMPLETE", physical_id=physical_id)
        del resources[logical_id]
    await asyncio.sleep(0)
    if failed:
        reason = f"The following resource(s) failed to delete: [{', '.join(sorted(failed))}]. "
        _set_status(stack, "DELETE_FAILED", reason)
        return
    for export_name in _exports_of(stack_id):
        cloudformation._exports.pop(export_name, None)
    _set_status(stack, "DELETE_COMPLETE")


def _deletion_order(
    definitions: Mapping[str, Any], resources: Mapping[str, Any], conditions: Mapping[str, bool]
) -> list[str]:
    creation: list[str] = creation_order.creation_order(dict(definitions), dict(conditions)) if definitions else []
    # What the template no longer names (its clean-up failed once) has no dependents left: it goes first.
    leftovers = [logical_id for logical_id in resources if logical_id not in creation]
    return [*leftovers, *(logical_id for logical_id in reversed(creation) if logical_id in resources)]


async def _delete_one(stack_name: str, logical_id: str, record: Mapping[str, Any], policy: str) -> None:
    kind, physical_id = record.get("ResourceType", ""), record.get("PhysicalResourceId", "")
    properties = record.get("Properties", {})
    if policy == "Snapshot":
        stacks._snapshot_resource(kind, physical_id, properties)
    arguments = (kind, physical_id, properties, stack_name, logical_id)
    if stacks._runs_on_worker_thread(kind):
        await stacks.run_reentrant(provisioners._delete_resource, *arguments)
    else:
        provisioners._delete_resource(*arguments)


def _set_status(stack: dict[str, Any], status: str, reason: str = "") -> None:
    stack["StackStatus"] = status
    stack["StackStatusReason"] = reason
    stacks._add_event(
        stack["StackId"], stack["StackName"], stack["StackName"], _STACK, status, reason, stack["StackId"]
    )


# ---- clean-up after an update, rollback of a creation -------------------------------------------------------------


def _retry_cleanup() -> None:
    original_delete = stacks._delete_resource
    original_roll_back = stacks._roll_back_operation

    def delete_resource(
        kind: str, physical_id: str, properties: object, stack_name: str = "", logical_id: str = ""
    ) -> None:
        stack = cloudformation._stacks.get(stack_name) or {}
        arguments = (kind, physical_id, properties, stack_name, logical_id)
        if stack.get("StackStatus") == "ROLLBACK_IN_PROGRESS":
            _delete_in_rollback(original_delete, stack, arguments)
        else:
            _delete_in_cleanup(original_delete, stack, arguments)

    async def roll_back_operation(
        stack_name: str, stack_id: str, stack: dict[str, Any], *rest: object, **named: object
    ) -> None:
        await original_roll_back(stack_name, stack_id, stack, *rest, **named)
        if stack.get("StackStatus") == "ROLLBACK_FAILED":
            # What could not be deleted still belongs to the stack, so that DeleteStack tries again.
            for logical_id, record in (stack.get("_rollback_failed") or {}).items():
                stack["_resources"][logical_id] = {
                    **record,
                    "LogicalResourceId": logical_id,
                    "ResourceStatus": "DELETE_FAILED",
                    "Attributes": {},
                    "Timestamp": responses.now_iso(),
                }

    stacks._delete_resource = delete_resource
    stacks._roll_back_operation = roll_back_operation
    handlers._roll_back_operation = roll_back_operation


def _delete_in_cleanup(original: _Delete, stack: dict[str, Any], arguments: _Arguments) -> None:
    """Delete what an update leaves behind; try again where that fails."""
    kind, physical_id, _properties, _stack_name, logical_id = arguments
    status = str(stack.get("StackStatus", ""))
    # During a rollback ministack writes these events itself.
    tells = status == "UPDATE_IN_PROGRESS"
    attempts = CLEANUP_ATTEMPTS if status.startswith("UPDATE_") else 1
    for attempt in range(1, attempts + 1):
        if tells:
            _event(stack, logical_id, kind, "DELETE_IN_PROGRESS", physical_id)
        try:
            original(*arguments)
        except Exception as error:
            if attempt == attempts:
                raise
            _event(stack, logical_id, kind, "DELETE_FAILED", physical_id, str(error))
        else:
            if tells:
                _event(stack, logical_id, kind, "DELETE_COMPLETE", physical_id)
            return


def _delete_in_rollback(original: _Delete, stack: dict[str, Any], arguments: _Arguments) -> None:
    """Delete what a failed creation made, unless something that depends on it could not be deleted."""
    logical_id = arguments[-1]
    failed: set[str] = stack.setdefault("_training_storage_failed", set())
    definitions = (stack.get("_template") or {}).get("Resources", {})
    if logical_id in stacks._with_dependencies(failed, definitions, set(definitions)):
        message = "Not deleted: a resource that depends on it could not be deleted."
        raise ValueError(message)
    try:
        original(*arguments)
    except Exception:
        failed.add(logical_id)
        raise


def _event(
    stack: Mapping[str, Any], logical_id: str, kind: str, status: str, physical_id: str, reason: str = ""
) -> None:
    stacks._add_event(stack["StackId"], stack["StackName"], logical_id, kind, status, reason, physical_id)
