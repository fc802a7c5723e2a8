"""The calls of the gate, and what their errors mean to it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from . import tags
from .refusal import NotFoundError, NotNowError, RefusalError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

EXPORT = "EXPORT_TO_REPOSITORY"
#: A task in one of these holds up the next one, and the deletion of the file system.
RUNNING = ("PENDING", "EXECUTING", "CANCELING")

_DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation")
#: S3 answers InvalidRange for a range of an empty object.
_NOT_FOUND = (
    "FileSystemNotFound",
    "DataRepositoryAssociationNotFound",
    "ResourceNotFound",
    "NoSuchKey",
    "InvalidRange",
)
_NOT_NOW = (
    "InternalError",
    "InternalFailure",
    "InternalServerError",
    "InternalServiceFault",
    "RequestLimitExceeded",
    "ServiceLimitExceeded",
    "ServiceUnavailable",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
)
_SERVER_ERROR = 500

Record = dict[str, Any]


class Calls:
    """FSx, CloudFormation and S3, as far as the gate needs them.

    Parameters
    ----------
    fsx, s3, cloudformation
        boto3 clients, or what answers like them.
    """

    def __init__(self, *, fsx: Any, s3: Any, cloudformation: Any) -> None:  # noqa: ANN401 - boto3 clients have no type
        self._fsx = fsx
        self._s3 = s3
        self._cloudformation = cloudformation

    # ---- reading ----

    def file_system(self, file_system_id: str) -> Record | None:
        """Return a file system; None if it is gone."""
        try:
            found = ask("fsx:DescribeFileSystems", self._fsx.describe_file_systems, FileSystemIds=[file_system_id])
        except NotFoundError:
            return None
        records: list[Record] = found["FileSystems"]
        return records[0] if records else None

    def file_systems_of(self, gate: str) -> list[Record]:
        """Return the file systems that carry the tag of `gate`."""
        every = self._pages("fsx:DescribeFileSystems", self._fsx.describe_file_systems, "FileSystems")
        return [record for record in every if tags.of(record).get(tags.GATE) == gate]

    def links(self, file_system_id: str) -> list[Record]:
        """Return the links of a file system, ordered by path."""
        found = self._pages(
            "fsx:DescribeDataRepositoryAssociations",
            self._fsx.describe_data_repository_associations,
            "Associations",
            file_system_id,
        )
        return sorted(found, key=lambda link: str(link["FileSystemPath"]))

    def tasks(self, file_system_id: str) -> list[Record]:
        """Return the tasks of a file system, the oldest first."""
        found = self._pages(
            "fsx:DescribeDataRepositoryTasks",
            self._fsx.describe_data_repository_tasks,
            "DataRepositoryTasks",
            file_system_id,
        )
        return sorted(found, key=lambda task: task["CreationTime"])

    def stack_status(self, stack_id: str) -> str:
        """Return the status of a stack."""
        found = ask("cloudformation:DescribeStacks", self._cloudformation.describe_stacks, StackName=stack_id)
        return str(found["Stacks"][0]["StackStatus"])

    def read_start(self, *, bucket: str, key: str, size: int) -> str:
        """Return the first `size` bytes of an object as text; nothing if it is empty or there is none."""
        try:
            found = ask("s3:GetObject", self._s3.get_object, Bucket=bucket, Key=key, Range=f"bytes=0-{size - 1}")
        except NotFoundError:
            return ""
        return str(found["Body"].read(size).decode("utf-8", "replace"))

    # ---- writing ----

    def write_json(self, *, bucket: str, key: str, content: Mapping[str, Any]) -> None:
        """Write an object."""
        body = json.dumps(content, indent=1, default=str).encode()
        ask("s3:PutObject", self._s3.put_object, Bucket=bucket, Key=key, Body=body, ContentType="application/json")

    def tag(self, arn: str, **values: str) -> None:
        """Set tags, by the names of the constants of `tags`."""
        pairs = [tags.pair(getattr(tags, name), value) for name, value in values.items()]
        ask("fsx:TagResource", self._fsx.tag_resource, ResourceARN=arn, Tags=pairs)

    def untag(self, arn: str, *keys: str) -> None:
        """Remove tags."""
        ask("fsx:UntagResource", self._fsx.untag_resource, ResourceARN=arn, TagKeys=list(keys))

    def set_export_events(self, link: Mapping[str, Any], events: Sequence[str]) -> None:
        """Set which events of a link are exported automatically; what is imported stays as it is."""
        imports = ((link.get("S3") or {}).get("AutoImportPolicy") or {}).get("Events")
        policies: Record = {"AutoExportPolicy": {"Events": list(events)}}
        if imports:
            policies["AutoImportPolicy"] = {"Events": imports}
        ask(
            "fsx:UpdateDataRepositoryAssociation",
            self._fsx.update_data_repository_association,
            AssociationId=link["AssociationId"],
            S3=policies,
        )

    def start_export(
        self, file_system_id: str, *, paths: Sequence[str], report: str, token: str, gate: str, attempt: str
    ) -> None:
        """Start an export task; the same `token` never starts a second one."""
        # Without paths a task exports all of the file system, as a link of "/" asks.
        limits = {"Paths": list(paths)} if paths else {}
        try:
            ask(
                "fsx:CreateDataRepositoryTask",
                self._fsx.create_data_repository_task,
                FileSystemId=file_system_id,
                Type=EXPORT,
                **limits,
                Report={
                    "Enabled": True,
                    "Path": report,
                    "Format": "REPORT_CSV_20191124",
                    "Scope": "FAILED_FILES_ONLY",
                },
                ClientRequestToken=token,
                Tags=[tags.pair(tags.GATE, gate), tags.pair(tags.ATTEMPT, attempt)],
            )
        except TaskExecutingError:
            # Somebody else's began in between: it is waited for like any other.
            return

    def delete_file_system(self, file_system_id: str) -> None:
        """Delete a file system; FSx takes its links with it, and nothing at all if it refuses."""
        try:
            ask("fsx:DeleteFileSystem", self._fsx.delete_file_system, FileSystemId=file_system_id)
        except NotFoundError:
            return

    def _pages(
        self, action: str, call: Callable[..., Any], key: str, file_system_id: str | None = None
    ) -> list[Record]:
        request: Record = {}
        if file_system_id is not None:
            request["Filters"] = [{"Name": "file-system-id", "Values": [file_system_id]}]
        found: list[Record] = []
        try:
            while True:
                page = ask(action, call, **request)
                found += page[key]
                if not page.get("NextToken"):
                    return found
                request["NextToken"] = page["NextToken"]
        except NotFoundError:
            return []


class TaskExecutingError(Exception):
    """Another task of the file system is under way."""


def ask(action: str, call: Callable[..., Any], **request: Any) -> Any:  # noqa: ANN401 - of any service
    """Call, and say what an error means.

    Raises
    ------
    NotNowError
        If it is worth another try as it is.
    NotFoundError
        If what it is about is gone.
    RefusalError
        If AWS refuses.
    """
    try:
        return call(**request)
    except BotoCoreError as error:
        raise NotNowError(f"{action} could not be called: {error}") from error
    except ClientError as error:
        answer = error.response["Error"]
        code, message = str(answer.get("Code", "")), " ".join(str(answer.get("Message", "")).split())
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if code in _DENIED:
            raise RefusalError(
                f"{action} is denied ({message})",
                way_out=f"Let the function's role do {action} and run it again",
                words=f"{action} is denied",
            ) from error
        if code in _NOT_FOUND:
            raise NotFoundError(message) from error
        if code == "DataRepositoryTaskExecuting":
            raise TaskExecutingError from error
        if code in _NOT_NOW or status >= _SERVER_ERROR:
            raise NotNowError(f"{action} answered {code}: {message}") from error
        raise RefusalError(
            f"{action} answered {code}: {message}",
            way_out="Mend what it names and run it again",
            words=f"{action} answered {code}",
        ) from error
