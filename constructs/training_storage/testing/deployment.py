"""Deploys what CDK synthesized into a local AWS, through its CloudFormation API and in this process."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from botocore.exceptions import ClientError

from training_storage.planning.catalog.cloudformation import template_body_bytes_maximum
from training_storage.testing.assembly import StackArtifact, read_assembly
from training_storage.testing.asset_publishing import ASSETS_BUCKET, parameter_missing, publish, put, written
from training_storage.testing.sources import synthesized_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from aws_cdk import App, Stack, Stage
    from aws_cdk.cx_api import CloudAssembly

    from training_storage.testing.local_aws import LocalAws

__all__ = ["DeployedResource", "Deployment", "DeploymentError", "deploy"]

_CAPABILITIES = ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"]
_GOOD = ("CREATE_COMPLETE", "UPDATE_COMPLETE")
_GONE = ("", "DELETE_COMPLETE")
# The first pauses between two looks at a stack, and the longest. In between it is a twentieth of what has gone by: each
# look costs what is at work at the same time, on the same machine.
_POLL_SECONDS: Final = 0.05
_LONGEST_POLL_SECONDS: Final = 0.5
# A custom resource may take an hour on AWS; here nothing waits for hardware.
_TIMEOUT_SECONDS: Final = 300.0
# In the reason of a stack whose template was refused before anything was made.
_ELSEWHERE = "Call DescribeEvents"
_BOOTSTRAP_PREFIX = "/cdk-bootstrap/"


class DeploymentError(Exception):
    """A stack did not become what it was asked for; one line for each resource that failed."""


@dataclass(frozen=True, kw_only=True)
class DeployedResource:
    """A resource that stands.

    Parameters
    ----------
    logical_id, resource_type
        As in the template.
    physical_id
        What AWS calls it.
    status
        Of CloudFormation, such as ``CREATE_COMPLETE``.
    """

    logical_id: str
    physical_id: str
    resource_type: str
    status: str


@dataclass(frozen=True, kw_only=True)
class _Stack:
    """A stack that was deployed: where, and the events before its last operation."""

    name: str
    region: str
    seen: frozenset[str] = field(default_factory=frozenset)


def deploy(
    source: App | Stage | Stack | CloudAssembly | os.PathLike[str] | str,
    *,
    aws: LocalAws,
    parameters: Mapping[str, str] | None = None,
    check: bool = True,
    timeout_seconds: float = _TIMEOUT_SECONDS,
) -> Deployment:
    """Deploy stacks with their assets into a local AWS, in the order of their dependencies.

    No CDK CLI and no bootstrap are needed. A stack that stands is updated; one whose template is the same is left as
    it is. Images are not built: `Deployment.not_published` names them.

    Parameters
    ----------
    source
        An app, a stage, one of their stacks (with those that it depends on), a cloud assembly or its folder.
    aws
        The local AWS.
    parameters
        Values of CloudFormation parameters by ``Name`` or ``Stack:Name``, as for ``cdk deploy --parameters``.
    check
        Raise if a stack does not end in ``CREATE_COMPLETE`` or ``UPDATE_COMPLETE``; otherwise ask `Deployment.status`.
    timeout_seconds
        How long one stack may take.

    Raises
    ------
    DeploymentError
        Naming every resource that failed, with the reason.
    TypeError, ValueError
        If `source` is nothing that can be deployed; one line.
    TimeoutError
        If a stack takes longer.
    """
    deployment = Deployment(aws=aws, timeout_seconds=timeout_seconds)
    return deployment.update(source, parameters=parameters, check=check)


class Deployment:
    """Stacks that were deployed into a local AWS; as a context manager it destroys them at the end.

    Made by `deploy` and `LocalAws.deploy`. Where a method takes a `stack`, its name may be left out if there is one
    only, or to mean the one that was given to `deploy`; `destroy` then means all.
    """

    def __init__(self, *, aws: LocalAws, timeout_seconds: float = _TIMEOUT_SECONDS) -> None:
        self.aws = aws
        self._timeout_seconds = timeout_seconds
        self._stacks: dict[str, _Stack] = {}
        self._meant: str | None = None
        self._not_published: list[str] = []

    @property
    def stack_names(self) -> tuple[str, ...]:
        """Names of the stacks, in the order of their deployment."""
        return tuple(self._stacks)

    @property
    def not_published(self) -> tuple[str, ...]:
        """Assets that were left out: one line for each image."""
        return tuple(self._not_published)

    def client(self, service: str) -> Any:  # noqa: ANN401 -- boto3 clients have no static type
        """Return a boto3 client of the local AWS, in the Region of the stack; its endpoint is stated."""
        regions = {stack.region for stack in self._stacks.values()}
        return self.aws.client(service, region_name=regions.pop() if len(regions) == 1 else None)

    def status(self, stack: str | None = None) -> str:
        """Return the status of a stack; empty once it is gone."""
        one = self._one(stack)
        return str((self._describe(one) or {"StackStatus": ""})["StackStatus"])

    def outputs(self, stack: str | None = None) -> dict[str, str]:
        """Return the outputs of a stack."""
        found = self._describe(self._one(stack)) or {}
        return {output["OutputKey"]: output["OutputValue"] for output in found.get("Outputs", [])}

    def resources(self, resource_type: str | None = None, *, stack: str | None = None) -> tuple[DeployedResource, ...]:
        """Return the resources of a stack that stand.

        Parameters
        ----------
        resource_type
            Only those of this type, such as ``AWS::FSx::FileSystem``.
        stack
            Name of the stack.
        """
        one = self._one(stack)
        pages = self._cloudformation(one).get_paginator("list_stack_resources").paginate(StackName=one.name)
        found = (
            DeployedResource(
                logical_id=summary["LogicalResourceId"],
                physical_id=summary.get("PhysicalResourceId", ""),
                resource_type=summary["ResourceType"],
                status=summary["ResourceStatus"],
            )
            for page in pages
            for summary in page["StackResourceSummaries"]
        )
        return tuple(
            resource
            for resource in found
            if resource.status in (*_GOOD, "DELETE_FAILED") and resource_type in (None, resource.resource_type)
        )

    def failures(self, stack: str | None = None) -> tuple[str, ...]:
        """Return why the last operation on a stack failed: one line for each resource, the first to fail first."""
        one = self._one(stack)
        lines = []
        for event in reversed(self._events(one)):
            if event["EventId"] in one.seen or not event["ResourceStatus"].endswith("_FAILED"):
                continue
            reason = event.get("ResourceStatusReason")
            # What CloudFormation finds before it makes anything is told elsewhere.
            lines += self._refused(one) if _ELSEWHERE in str(reason) else [_failure(event, reason)]
        return tuple(dict.fromkeys(lines))

    def update(
        self,
        source: App | Stage | Stack | CloudAssembly | os.PathLike[str] | str,
        *,
        parameters: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Self:
        """Deploy what is new or changed in `source`; parameters and errors are those of `deploy`."""
        folder, artifact_id = synthesized_folder(source)
        wanted = _wanted(read_assembly(folder), artifact_id)
        if not wanted:
            raise ValueError(f"source must hold a stack, got: '{folder}' without one")
        given = dict(parameters or {})
        _require_known(given, wanted)
        for artifact in wanted:
            self._bring(artifact, given, check=check)
        self._meant = wanted[-1].name if artifact_id is not None or len(wanted) == 1 else None
        return self

    def destroy(self, stack: str | None = None, *, unprotect: bool = False, check: bool = True) -> None:
        """Delete the stacks, the last first, or one of them. What their templates retain stays, as on AWS.

        Parameters
        ----------
        stack
            Name of the only one to delete; all of them if it is left out.
        unprotect
            Lift termination protection where a stack has it.
        check
            Raise if a stack does not go.

        Raises
        ------
        DeploymentError
            Naming every resource that could not be deleted, with the reason.
        """
        for name in reversed(self.stack_names) if stack is None else [self._one(stack).name]:
            one = self._stacks[name]
            found = self._describe(one)
            if found is None:
                continue
            client = self._cloudformation(one)
            if unprotect and found.get("EnableTerminationProtection"):
                client.update_termination_protection(StackName=name, EnableTerminationProtection=False)
            self._remember(one)
            try:
                client.delete_stack(StackName=name)
            except ClientError as error:
                if check:
                    raise DeploymentError(f"{name}: {_one_line(error)}") from None
                continue
            status = self._settle(self._stacks[name], found["StackId"])
            if check and status not in _GONE:
                raise self._failed(name, status)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A test that already failed says more than what could not be deleted after it.
        self.destroy(unprotect=True, check=error is None)

    def _bring(self, artifact: StackArtifact, given: Mapping[str, str], *, check: bool) -> None:
        region = artifact.region or self.aws.region
        self._stacks[artifact.name] = one = _Stack(name=artifact.name, region=region)
        client = self._cloudformation(one)
        text = artifact.template_file.read_text(encoding="utf-8")
        template = json.loads(text)
        self._prepare(artifact, template, region=region)
        standing = self._describe(one)
        if standing is not None and standing["StackStatus"] == "ROLLBACK_COMPLETE":
            # Of a failed creation; CloudFormation allows nothing but its deletion, and so does the CDK CLI.
            client.delete_stack(StackName=one.name)
            self._settle(one, standing["StackId"])
            standing = None
        values = _values(artifact, template, given)
        if standing is not None and self._same(one, template, values, standing):
            return
        self._remember(one)
        operation = client.create_stack if standing is None else client.update_stack
        try:
            operation(
                StackName=one.name,
                **self._template(text, region=region),
                Parameters=_entries(template, values, standing),
                Tags=[{"Key": key, "Value": value} for key, value in artifact.tags.items()],
                Capabilities=_CAPABILITIES,
            )
        except ClientError as error:
            if "No updates are to be performed" not in str(error):
                raise DeploymentError(f"{one.name}: {_one_line(error)}") from None
        status = self._settle(one)
        if check and status not in _GOOD:
            raise self._failed(one.name, status)
        if artifact.termination_protection and status in _GOOD:
            client.update_termination_protection(StackName=one.name, EnableTerminationProtection=True)

    def _prepare(self, artifact: StackArtifact, template: Mapping[str, Any], *, region: str) -> None:
        """Do what a bootstrap and ``cdk-assets`` do: the version's parameter, buckets and files."""
        for declared in template.get("Parameters", {}).values():
            name = str(declared.get("Default", ""))
            if name.startswith(_BOOTSTRAP_PREFIX) and parameter_missing(self.aws, name, region=region):
                self.aws.client("ssm", region_name=region).put_parameter(
                    Name=name, Value=str(artifact.bootstrap_version), Type="String"
                )
        if artifact.asset_manifest is not None:
            lines = publish(artifact.asset_manifest, aws=self.aws, region=region)
            self._not_published = list(dict.fromkeys([*self._not_published, *lines]))

    def _template(self, text: str, *, region: str) -> dict[str, str]:
        if len(text.encode()) <= template_body_bytes_maximum():
            return {"TemplateBody": text}
        bucket, key = written(ASSETS_BUCKET, region=region), "template.json"
        put(self.aws, bucket, key, text.encode(), region=region)
        return {"TemplateURL": f"https://s3.{region}.amazonaws.com/{bucket}/{key}"}

    def _same(
        self, one: _Stack, template: Mapping[str, Any], values: Mapping[str, str], standing: Mapping[str, Any]
    ) -> bool:
        """Whether a stack stands as it should, so that there is nothing to do, as the CDK CLI finds it."""
        body = self._cloudformation(one).get_template(StackName=one.name)["TemplateBody"]
        deployed = json.loads(body) if isinstance(body, str) else body
        known = _parameters(standing)
        return (
            standing["StackStatus"] in _GOOD
            and deployed == template
            and all(known.get(key) == value for key, value in values.items())
        )

    def _remember(self, one: _Stack) -> None:
        """Note the events that there are, so that those of the next operation can be told from them."""
        seen = frozenset(event["EventId"] for event in self._events(one))
        self._stacks[one.name] = _Stack(name=one.name, region=one.region, seen=seen)

    def _settle(self, one: _Stack, stack_id: str | None = None) -> str:
        """Wait until an operation has ended; return the stack's status."""
        begun = time.monotonic()
        while True:
            found = self._describe(one, stack_id)
            status = "" if found is None else str(found["StackStatus"])
            if not status.endswith("_IN_PROGRESS"):
                return status
            gone = time.monotonic() - begun
            if gone > self._timeout_seconds:
                raise TimeoutError(
                    f"{one.name} must settle within {self._timeout_seconds:g} s, got: {status};"
                    " a larger timeout_seconds waits longer"
                )
            time.sleep(min(max(_POLL_SECONDS, gone / 20), _LONGEST_POLL_SECONDS))

    def _failed(self, name: str, status: str) -> DeploymentError:
        return DeploymentError("\n".join([f"{name} ended {status or 'without a trace'}", *self.failures(name)]))

    def _describe(self, one: _Stack, stack_id: str | None = None) -> dict[str, Any] | None:
        try:
            found = self._cloudformation(one).describe_stacks(StackName=stack_id or one.name)["Stacks"]
        except ClientError as error:
            if "does not exist" in str(error):
                return None
            raise
        stack: dict[str, Any] | None = next(iter(found), None)
        return None if stack is None or stack["StackStatus"] == "DELETE_COMPLETE" else stack

    def _events(self, one: _Stack) -> list[dict[str, Any]]:
        """Return the events of a stack, the newest first; none if there is no such stack."""
        pages = self._cloudformation(one).get_paginator("describe_stack_events").paginate(StackName=one.name)
        try:
            return [event for page in pages for event in page["StackEvents"]]
        except ClientError:
            return []

    def _refused(self, one: _Stack) -> list[str]:
        """Return what CloudFormation refused of a template before it made anything."""
        answer = self._cloudformation(one).describe_events(StackName=one.name, Filters={"FailedEvents": True})
        return [
            _failure(event, event.get("ValidationStatusReason"))
            for event in answer["OperationEvents"]
            if event["EventType"] == "VALIDATION_ERROR"
        ]

    def _cloudformation(self, one: _Stack) -> Any:  # noqa: ANN401 -- boto3 clients have no static type
        return self.aws.client("cloudformation", region_name=one.region)

    def _one(self, stack: str | None) -> _Stack:
        name = stack or self._meant
        if name is None or name not in self._stacks:
            raise ValueError(f"stack must be one of {', '.join(self._stacks)}, got: {stack!r}")
        return self._stacks[name]


def _wanted(artifacts: Sequence[StackArtifact], artifact_id: str | None) -> list[StackArtifact]:
    """Return the stacks to deploy: all, or one and those that it depends on."""
    if artifact_id is None:
        return list(artifacts)
    by_id = {artifact.artifact_id: artifact for artifact in artifacts}
    needed, pending = {artifact_id}, [artifact_id]
    while pending:
        for dependency in by_id[pending.pop()].dependencies:
            if dependency not in needed:
                needed.add(dependency)
                pending.append(dependency)
    return [artifact for artifact in artifacts if artifact.artifact_id in needed]


def _require_known(given: Mapping[str, str], wanted: Sequence[StackArtifact]) -> None:
    """Refuse a parameter that no template has: it would be ignored."""
    if not given:
        return
    known = {
        name
        for artifact in wanted
        for parameter in json.loads(artifact.template_file.read_text(encoding="utf-8")).get("Parameters", {})
        for name in (parameter, f"{artifact.name}:{parameter}")
    }
    for name in given:
        if name not in known:
            raise ValueError(f"parameters must be those of the templates, got: {name!r}, which none declares")


def _values(artifact: StackArtifact, template: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a stack's parameters that are stated: now, or by the app."""
    known = dict(artifact.parameters)
    declared = template.get("Parameters", {})
    for name in declared:
        for key in (name, f"{artifact.name}:{name}"):
            if key in given:
                known[name] = given[key]
    return {name: str(known[name]) for name in declared if name in known}


def _entries(
    template: Mapping[str, Any], values: Mapping[str, str], standing: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    """Return the parameters of a request; what is not stated keeps its value, as with the CDK CLI."""
    kept = _parameters(standing or {}).keys() & template.get("Parameters", {}).keys() - values.keys()
    return [
        *({"ParameterKey": name, "ParameterValue": value} for name, value in values.items()),
        *({"ParameterKey": name, "UsePreviousValue": True} for name in sorted(kept)),
    ]


def _parameters(stack: Mapping[str, Any]) -> dict[str, str]:
    return {entry["ParameterKey"]: entry.get("ParameterValue", "") for entry in stack.get("Parameters", [])}


def _failure(event: Mapping[str, Any], reason: object) -> str:
    return f"{event['LogicalResourceId']} ({event['ResourceType']}): {_one_line(reason)}"


def _one_line(text: object) -> str:
    return " ".join(str(text or "no reason given").split())
