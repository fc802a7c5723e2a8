"""Data repository tasks: they run, and fail or hang where the control says so."""

import time
from collections.abc import Mapping
from typing import Any

from training_storage.testing.local_aws.fsx.association_rules import bucket_of
from training_storage.testing.local_aws.fsx.errors import FsxError, bad_request, not_found
from training_storage.testing.local_aws.fsx.store import Record, Store
from training_storage.testing.local_aws.fsx.surroundings import Surroundings
from training_storage.testing.local_aws.resource_attributes import partition_of

EXPORT = "EXPORT_TO_REPOSITORY"
TYPES = (EXPORT, "IMPORT_METADATA_FROM_REPOSITORY", "RELEASE_DATA_FROM_FILESYSTEM")
REPORT_FORMAT = "REPORT_CSV_20191124"
# A tag of the task that overrides the control for this one task.
OUTCOME_TAG = "training-storage:task-outcome"

_MAX_PATHS = 100
_ENDED = ("SUCCEEDED", "FAILED", "CANCELED")


def create(*, store: Store, surroundings: Surroundings, file_system: Record, request: Mapping[str, Any]) -> Record:
    """Start a task.

    Raises
    ------
    FsxError
        ``DataRepositoryTaskExecuting`` while another task of the file system is under way, ``BadRequest`` otherwise.
    """
    file_system_id = file_system["FileSystemId"]
    token = request.get("ClientRequestToken")
    for task in store.tasks.values():
        if token and task["_token"] == token and task["FileSystemId"] == file_system_id:
            return task
    linked = store.associations_of(file_system_id)
    _check(request, file_system, linked)
    if store.running_tasks_of(file_system_id):
        raise FsxError(
            "DataRepositoryTaskExecuting",
            "An existing data repository task is currently executing on the file system. Wait until the existing "
            "task has completed, then create the new task.",
        )
    task_id = f"task-{file_system_id.removeprefix('fs-')[:3]}{time.time_ns():x}"[:22]
    region, account = surroundings.region(), surroundings.account()
    record: Record = {
        "TaskId": task_id,
        "Lifecycle": "PENDING",
        "Type": request["Type"],
        "CreationTime": time.time(),
        "ResourceARN": f"arn:{partition_of(region)}:fsx:{region}:{account}:task/{task_id}",
        "Tags": [dict(tag) for tag in request.get("Tags") or []],
        "FileSystemId": file_system_id,
        "Paths": list(request.get("Paths") or []),
        "Status": {"TotalCount": 0, "SucceededCount": 0, "FailedCount": 0, "LastUpdatedTime": time.time()},
        "Report": dict(request["Report"]),
        "_outcome": _outcome(store, request),
        "_token": token,
    }
    if request.get("ReleaseConfiguration"):
        record["ReleaseConfiguration"] = request["ReleaseConfiguration"]
    store.tasks[task_id] = record

    def start() -> None:
        record["Lifecycle"] = "EXECUTING"
        record["StartTime"] = time.time()
        if record["_outcome"] != "HANG":
            store.later(record, finish, seconds=store.control.task_seconds)

    def finish() -> None:
        _finish(store, surroundings, record)

    store.later(record, start)
    return record


def reschedule(store: Store) -> None:
    """Let the tasks that are under way end after the time that the control says now."""
    seconds = store.control.task_seconds
    for record in store.tasks.values():
        if record["Lifecycle"] == "EXECUTING" and record.get("_due") is not None:
            record["_due"] = record["StartTime"] + (store.control.transition_seconds if seconds is None else seconds)


def find(store: Store, task_id: str) -> Record:
    """Return a task.

    Raises
    ------
    FsxError
        ``DataRepositoryTaskNotFound``.
    """
    record = store.tasks.get(task_id)
    if record is None:
        raise not_found("DataRepositoryTask", task_id)
    return record


def cancel(*, store: Store, record: Record) -> Record:
    """Stop a task; files that it has exported stay exported."""
    if record["Lifecycle"] in _ENDED:
        raise FsxError(
            "DataRepositoryTaskEnded",
            "The data repository task could not be canceled because the task has already ended.",
        )
    record["Lifecycle"] = "CANCELING"

    def canceled() -> None:
        record["Lifecycle"] = "CANCELED"
        record["EndTime"] = time.time()

    store.later(record, canceled)
    return record


def _check(request: Mapping[str, Any], file_system: Record, linked: list[Record]) -> None:
    kind = request.get("Type")
    if kind not in TYPES:
        raise bad_request(f"Task type must be one of {', '.join(TYPES)}, got: {kind}.")
    if not linked and "DataRepositoryConfiguration" not in file_system["LustreConfiguration"]:
        raise bad_request("The file system is not linked to a data repository.")
    paths = list(request.get("Paths") or [])
    if len(paths) > _MAX_PATHS:
        raise bad_request(f"A task can have at most {_MAX_PATHS} paths, got: {len(paths)}.")
    if kind == "RELEASE_DATA_FROM_FILESYSTEM":
        if file_system["FileSystemTypeVersion"] == "2.10":
            raise bad_request("Releasing data is not supported on Lustre version 2.10.")
        if any("*" in path or "?" in path for path in paths):
            raise bad_request("Wildcards are not supported in the paths of a release task.")
    elif request.get("ReleaseConfiguration"):
        raise bad_request("ReleaseConfiguration is only supported for RELEASE_DATA_FROM_FILESYSTEM tasks.")
    if kind == EXPORT:
        _check_automatic_export(paths, linked)
    _check_report(request.get("Report") or {}, linked)


def _check_automatic_export(paths: list[str], linked: list[Record]) -> None:
    for link in linked:
        if _touches(link, paths) and (link["S3"].get("AutoExportPolicy") or {}).get("Events"):
            raise bad_request(
                f"Automatic export of {link['FileSystemPath']} must be disabled before an export task is executed."
            )


def _touches(link: Record, paths: list[str]) -> bool:
    """Whether an export of these paths works on files of a link."""
    root = "/" + str(link["FileSystemPath"]).strip("/")
    wanted = ["/" + str(path).strip("/") for path in paths] or ["/"]
    return any(_within(root, path) or _within(path, root) for path in wanted)


def _within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _check_report(report: Mapping[str, Any], linked: list[Record]) -> None:
    if "Enabled" not in report:
        raise bad_request("Report.Enabled is required.")
    if not report["Enabled"]:
        return
    if not report.get("Path") or report.get("Format") != REPORT_FORMAT or report.get("Scope") != "FAILED_FILES_ONLY":
        raise bad_request(
            f"An enabled report requires a Path, the Format {REPORT_FORMAT} and the Scope FAILED_FILES_ONLY."
        )
    if linked and not any(str(report["Path"]).startswith(link["DataRepositoryPath"]) for link in linked):
        raise bad_request(
            f"The report path {report['Path']} must be located within a data repository linked to the file system."
        )


def _outcome(store: Store, request: Mapping[str, Any]) -> str:
    for tag in request.get("Tags") or []:
        if tag["Key"] == OUTCOME_TAG:
            return str(tag["Value"])
    return store.control.task_outcome


def _finish(store: Store, surroundings: Surroundings, record: Record) -> None:
    files = _files(store, record)
    failed = {path: code for path, code in store.control.failed_files.items() if _covered(path, record)}
    succeeded = [path for path in files if path not in failed]
    cannot = record["_outcome"] == "FAIL" or (record["Type"] == EXPORT and _has_misconfigured_link(store, record))
    if not cannot and record["Type"] == EXPORT:
        _export(store, surroundings, record, {path: files[path] for path in succeeded})
    if cannot:
        failed = {**dict.fromkeys(succeeded, "InternalError"), **failed}
        succeeded = []
    ended_well = not cannot and not failed
    record["Lifecycle"] = "SUCCEEDED" if ended_well else "FAILED"
    record["EndTime"] = time.time()
    record["Status"] = {
        "TotalCount": len(succeeded) + len(failed),
        "SucceededCount": len(succeeded),
        "FailedCount": len(failed),
        "LastUpdatedTime": time.time(),
    }
    if not ended_well:
        record["FailureDetails"] = {"Message": "The data repository task failed; see its completion report."}
    if record["Report"].get("Enabled"):
        _write_report(surroundings, record, failed)


def _files(store: Store, record: Record) -> dict[str, str]:
    contents = store.control.files_of(record["FileSystemId"])
    exported = _exported(store, record) if record["Type"] == EXPORT else {}
    return {path: body for path, body in contents.items() if _covered(path, record) and exported.get(path) != body}


def _exported(store: Store, record: Record) -> dict[str, str]:
    """Return what tasks have exported so far: FSx exports what is new or changed since then."""
    system = store.file_systems.get(record["FileSystemId"], {})
    exported: dict[str, str] = system.setdefault("_exported", {})
    return exported


def _has_misconfigured_link(store: Store, record: Record) -> bool:
    links = store.associations_of(record["FileSystemId"])
    return any(store.misconfiguration(link) is not None and _touches(link, record["Paths"]) for link in links)


def _covered(path: str, record: Record) -> bool:
    """Whether a task's paths cover a file; a task without paths covers the file system."""
    wanted = ["/" + str(entry).strip("/") for entry in record["Paths"]]
    return not wanted or any(path == entry or path.startswith(entry.rstrip("/") + "/") for entry in wanted)


def _export(store: Store, surroundings: Surroundings, record: Record, files: Mapping[str, str]) -> None:
    exported = _exported(store, record)
    for path, body in files.items():
        exported[path] = body
        for link in store.associations_of(record["FileSystemId"]):
            root = "/" + str(link["FileSystemPath"]).strip("/")
            if path.startswith(root.rstrip("/") + "/"):
                bucket, key = _target(link["DataRepositoryPath"] + path[len(root.rstrip("/")) + 1 :])
                surroundings.put_object(bucket=bucket, key=key, body=body.encode())


def _write_report(surroundings: Surroundings, record: Record, failed: Mapping[str, str]) -> None:
    lines = [f"{path},FAILED,{code}" for path, code in sorted(failed.items())]
    bucket, key = _target(f"{str(record['Report']['Path']).rstrip('/')}/{record['TaskId']}/failures.csv")
    surroundings.put_object(bucket=bucket, key=key, body="".join(line + "\n" for line in lines).encode())


def _target(path: str) -> tuple[str, str]:
    bucket = bucket_of(path)
    return bucket, path.removeprefix(f"s3://{bucket}/")
