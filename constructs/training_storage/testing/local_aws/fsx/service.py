"""The FSx API: one method an operation, and the JSON protocol around them."""

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from training_storage.testing.local_aws.fsx import associations, file_systems, metrics, tasks
from training_storage.testing.local_aws.fsx.errors import FsxError, bad_request, denied, not_found
from training_storage.testing.local_aws.fsx.store import Record, Store, shown
from training_storage.testing.local_aws.fsx.surroundings import Surroundings
from training_storage.testing.local_aws.resource_attributes import partition_of

TARGET_PREFIX = "AWSSimbaAPIService_v20180301"
LINKED = "Backups cannot be created on S3-linked file systems"
_MAX_TAGS = 50


class FsxService:
    """The file systems of every account and Region of one local server."""

    def __init__(self, surroundings: Surroundings) -> None:
        self.surroundings = surroundings
        self._stores: dict[tuple[str, str], Store] = {}
        # Custom resources and the event loop both come here.
        self.lock = threading.RLock()
        self._operations: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
            "CreateFileSystem": self._create_file_system,
            "DescribeFileSystems": self._describe_file_systems,
            "UpdateFileSystem": self._update_file_system,
            "DeleteFileSystem": self._delete_file_system,
            "CreateDataRepositoryAssociation": self._create_association,
            "DescribeDataRepositoryAssociations": self._describe_associations,
            "UpdateDataRepositoryAssociation": self._update_association,
            "DeleteDataRepositoryAssociation": self._delete_association,
            "CreateDataRepositoryTask": self._create_task,
            "DescribeDataRepositoryTasks": self._describe_tasks,
            "CancelDataRepositoryTask": self._cancel_task,
            "CreateBackup": self._create_backup,
            "DescribeBackups": self._describe_backups,
            "DeleteBackup": self._delete_backup,
            "TagResource": self._tag,
            "UntagResource": self._untag,
            "ListTagsForResource": self._list_tags,
        }

    def store(self) -> Store:
        """Return the records of the request's account and Region."""
        key = (self.surroundings.account(), self.surroundings.region())
        return self._stores.setdefault(key, Store())

    def control(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Set test controls of the request's account and Region; return all of them."""
        with self.lock:
            control = self.store().control
            control.apply(changes)
            if "task_seconds" in changes:
                tasks.reschedule(self.store())
            return vars(control)

    def reset(self) -> None:
        """Forget everything, the controls too."""
        with self.lock:
            self._stores.clear()

    def tick(self) -> None:
        """Move on what is due, so that a report appears without anybody asking."""
        with self.lock:
            self.store().tick()
            metrics.publish(self.store(), self.surroundings)

    def call(self, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run one operation.

        Raises
        ------
        FsxError
            What the service answers.
        """
        handler = self._operations.get(operation)
        if handler is None:
            raise FsxError("UnsupportedOperation", f"The local FSx does not serve {operation}.")
        with self.lock:
            self.tick()
            if operation in self.store().control.denied:
                raise denied(operation, account=self.surroundings.account())
            return handler(request)

    def answer(self, target: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Answer one HTTP request of the JSON protocol."""
        headers = {"Content-Type": "application/x-amz-json-1.1"}
        try:
            content = self.call(target.rsplit(".", 1)[-1], json.loads(body or b"{}"))
        except FsxError as error:
            headers["x-amzn-ErrorType"] = error.code
            content = {"__type": error.code, "Message": error.message, **error.members}
            return 400, headers, json.dumps(content).encode()
        return 200, headers, json.dumps(content).encode()

    # ---- file systems ----

    def _create_file_system(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        record = file_systems.create(store=self.store(), surroundings=self.surroundings, request=request)
        return {"FileSystem": shown(record)}

    def _describe_file_systems(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        store = self.store()
        wanted = request.get("FileSystemIds")
        records = [file_systems.find(store, fs_id) for fs_id in wanted] if wanted else store.file_systems.values()
        return _page(records, request, "FileSystems")

    def _update_file_system(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        store = self.store()
        record = file_systems.find(store, request["FileSystemId"])
        return {"FileSystem": shown(file_systems.update(record=record, request=request))}

    def _delete_file_system(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        store = self.store()
        record = file_systems.find(store, request["FileSystemId"])
        file_systems.delete(store=store, surroundings=self.surroundings, record=record)
        return {"FileSystemId": record["FileSystemId"], "Lifecycle": "DELETING"}

    # ---- associations ----

    def _create_association(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        store = self.store()
        record = associations.create(
            store=store,
            surroundings=self.surroundings,
            file_system=file_systems.find(store, request["FileSystemId"]),
            request=request,
        )
        return {"Association": shown(record)}

    def _describe_associations(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        store = self.store()
        wanted = request.get("AssociationIds")
        records = [associations.find(store, key) for key in wanted] if wanted else list(store.associations.values())
        for entry in request.get("Filters") or []:
            if entry["Name"] == "file-system-id":
                records = [record for record in records if record["FileSystemId"] in entry["Values"]]
        return _page([associations.seen(store, record) for record in records], request, "Associations")

    def _update_association(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        store = self.store()
        record = associations.find(store, request["AssociationId"])
        return {"Association": shown(associations.update(store=store, record=record, request=request))}

    def _delete_association(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        store = self.store()
        record = associations.delete(store=store, record=associations.find(store, request["AssociationId"]))
        return {
            "AssociationId": record["AssociationId"],
            "Lifecycle": "DELETING",
            "DeleteDataInFileSystem": bool(request.get("DeleteDataInFileSystem")),
        }

    # ---- tasks ----

    def _create_task(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        store = self.store()
        file_system = file_systems.find(store, request["FileSystemId"])
        record = tasks.create(store=store, surroundings=self.surroundings, file_system=file_system, request=request)
        return {"DataRepositoryTask": shown(record)}

    def _describe_tasks(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        store = self.store()
        wanted = request.get("TaskIds")
        records = [tasks.find(store, key) for key in wanted] if wanted else list(store.tasks.values())
        for entry in request.get("Filters") or []:
            member = {"file-system-id": "FileSystemId", "task-lifecycle": "Lifecycle"}.get(entry["Name"])
            if member is None:
                raise bad_request(f"The filter {entry['Name']} is not served here.")
            records = [record for record in records if record[member] in entry["Values"]]
        return _page(records, request, "DataRepositoryTasks")

    def _cancel_task(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        store = self.store()
        record = tasks.cancel(store=store, record=tasks.find(store, request["TaskId"]))
        return {"Lifecycle": record["Lifecycle"], "TaskId": record["TaskId"]}

    # ---- backups ----

    def _create_backup(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        store = self.store()
        file_system = file_systems.find(store, request["FileSystemId"])
        if store.associations_of(file_system["FileSystemId"]) or (
            "DataRepositoryConfiguration" in file_system["LustreConfiguration"]
        ):
            raise bad_request(LINKED)
        if file_system["LustreConfiguration"]["DeploymentType"].startswith("SCRATCH"):
            raise bad_request("Backups are not supported on scratch file systems.")
        region, account = self.surroundings.region(), self.surroundings.account()
        backup_id = f"backup-{time.time_ns():017x}"
        record: Record = {
            "BackupId": backup_id,
            "Lifecycle": "CREATING",
            "Type": "USER_INITIATED",
            "CreationTime": time.time(),
            "ResourceARN": f"arn:{partition_of(region)}:fsx:{region}:{account}:backup/{backup_id}",
            "Tags": [dict(tag) for tag in request.get("Tags") or []],
            "FileSystem": shown(file_system),
            "OwnerId": account,
        }
        store.backups[backup_id] = record
        store.later(record, lambda: record.update(Lifecycle="AVAILABLE"))
        return {"Backup": shown(record)}

    def _describe_backups(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return _page(self.store().backups.values(), request, "Backups")

    def _delete_backup(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.store().backups.pop(request["BackupId"], None) is None:
            raise not_found("Backup", request["BackupId"])
        return {"BackupId": request["BackupId"], "Lifecycle": "DELETED"}

    # ---- tags ----

    def _tag(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        record = self._by_arn(request["ResourceARN"])
        tags = {tag["Key"]: tag["Value"] for tag in [*record["Tags"], *request["Tags"]]}
        if len(tags) > _MAX_TAGS:
            raise bad_request(f"A resource cannot have more than {_MAX_TAGS} tags.")
        record["Tags"] = [{"Key": key, "Value": value} for key, value in tags.items()]
        return {}

    def _untag(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        record = self._by_arn(request["ResourceARN"])
        record["Tags"] = [tag for tag in record["Tags"] if tag["Key"] not in request["TagKeys"]]
        return {}

    def _list_tags(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return _page(self._by_arn(request["ResourceARN"])["Tags"], request, "Tags")

    def _by_arn(self, arn: str) -> Record:
        store = self.store()
        for records in (store.file_systems, store.associations, store.tasks, store.backups):
            for record in records.values():
                if record["ResourceARN"] == arn:
                    return record
        raise FsxError("ResourceNotFound", f"The resource '{arn}' does not exist.", {"ResourceARN": arn})


def _page(records: Iterable[Record], request: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return one page; the token is the number of records before the next page."""
    every = list(records)
    start = int(request.get("NextToken") or 0)
    end = start + int(request.get("MaxResults") or len(every) or 1)
    page: dict[str, Any] = {key: [shown(record) for record in every[start:end]]}
    if end < len(every):
        page["NextToken"] = str(end)
    return page
