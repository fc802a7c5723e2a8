"""The gate: a file system goes only after what it holds is in the lake."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aws_cdk import CustomResource, Duration, IgnoreMode, RemovalPolicy, Stack, custom_resources
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from training_storage.acknowledgements import acknowledge, acknowledge_wildcards
from training_storage.operations.final_export.tags import EXPORTED_PATHS, GATE, paths_value
from training_storage.planning.catalog.cloudformation import custom_resource_seconds_maximum
from training_storage.validation import ConstructError, is_token, require_job_name, require_kinds, require_match

if TYPE_CHECKING:
    from collections.abc import Sequence

    from constructs import IDependable

    from training_storage.data_lake import DataLakeBase
    from training_storage.lustre_file_system import LustreFileSystem

__all__ = ["FinalExport"]

_CODE = Path(__file__).parent / "operations"
_PACKAGE = "final_export"
_POLL = Duration.seconds(30)
_METRIC_PERIOD = Duration.minutes(1)
#: One poll makes a few dozen calls; before a refusal it may wait for links that are changing.
_FUNCTION_TIMEOUT = Duration.minutes(5)
#: It holds a few hundred descriptions of AWS and the start of a report, whatever that report's size.
_MEMORY_MIB = 256
#: Polls left for a refusal, when the time for the export is over.
_LAST_POLLS = 3
#: Seconds left for the framework to answer before CloudFormation gives up.
_SPARE_SECONDS = 300


class FinalExport(Construct):
    """Deletes a file system and its links through the API, once what they hold is in the lake.

    When the stack is destroyed, drops the file system or replaces it, the gate stops automatic export, runs an export
    task over every writable link, compares, deletes and waits. If anything fails or time runs out, the operation
    fails with the reason, automatic export is on again, and file system, links and this gate stand; the export goes
    on, and the next try waits for it. What it does and why is in docs/decisions/0010 and docs/deleting.md.

    Let whatever writes to the file system depend on this construct, so that it goes first.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    file_system
        The file system, with all its links: none can be added afterwards. Without any link nothing can be exported,
        and the file system is deleted at once.
    data_lake
        The lake, for completion reports.
    job_name
        Name of the job, for the reports' prefix.
    report_prefix
        Prefix of the lake for completion reports and the record of what was exported, such as
        "logs/default/final-export/". It must lie within a linked prefix: FSx writes reports nowhere else. By default
        `final-export/` below the job's logs, or below the first writable link's prefix if the logs are not linked.
    disposable_paths
        Linked paths whose content may be lost, such as "/checkpoints" of a trial run: they are not exported.
    network
        Constructs without which the file system cannot be reached, such as the network made for it: a refused
        deletion leaves them standing too.
    poll_interval
        Between two looks.
    time_limit
        For one try, at most 55 minutes: CloudFormation ends a custom resource after an hour.
    metric_period
        Length of the periods of FSx's metrics, a minute.
    role
        Role of the caller for the functions; one of its own if none is given. It must let lambda.amazonaws.com assume
        it; what the functions need is granted to it.

    Attributes
    ----------
    functions, role, log_group, provider
        What does it: one function begins, the other is asked until all is done. `provider` is CDK's framework, which
        calls them.
    report_prefix
        As it was given or chosen.
    gate, keeper
        The custom resources: one after file system and links, one before them. See docs/decisions/0010.
    environment, links
        What a function with `role` must know to do the same: `Park` shares it.

    Raises
    ------
    ConstructError
        For a second gate, a path that is not linked, a report prefix outside the links or a longer time limit.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        file_system: LustreFileSystem,
        data_lake: DataLakeBase,
        job_name: str,
        report_prefix: str | None = None,
        disposable_paths: Sequence[str] = (),
        network: Sequence[IDependable] = (),
        poll_interval: Duration | None = None,
        time_limit: Duration | None = None,
        metric_period: Duration | None = None,
        role: iam.IRole | None = None,
    ) -> None:
        require_job_name(job_name)
        require_kinds(needed=("file_system", "data_lake"), file_system=file_system, data_lake=data_lake)
        if file_system.is_imported:
            raise ConstructError(
                f"file_system of a FinalExport must be made in its stack, got: {file_system.node.path}, an imported"
                " one; the gate exports and deletes what its stack made. To export it, run 'training-storage archive'"
            )
        _require_one_stack(scope, file_system)
        if file_system.is_gated:
            raise ConstructError(f"a file system must have one FinalExport, got: a second one, {id!r}")
        _require_links(file_system, disposable_paths)
        poll = poll_interval or _POLL
        limit = time_limit or Duration.seconds(_longest())
        if not _LAST_POLLS * poll.to_seconds() < limit.to_seconds() <= _longest():
            raise ConstructError(
                f"time_limit must be more than {_LAST_POLLS} times poll_interval and at most {_longest() // 60}"
                f" minutes, got: {limit.to_seconds():g} seconds; CloudFormation ends a custom resource after an hour,"
                " and what takes longer is for 'training-storage park'"
            )
        _require_metric_period(metric_period)
        prefix = _report_prefix(file_system, job_name) if report_prefix is None else report_prefix
        _require_linked_prefix(file_system, prefix)
        super().__init__(scope, id)
        self.report_prefix: str = prefix
        stack = Stack.of(self)
        # The stack's id, so that a later stack of the same name is not taken for this one.
        self._tag = f"{stack.stack_id}/{self.node.addr[-8:]}"

        self.log_group = logs.LogGroup(
            self, "Logs", retention=logs.RetentionDays.THREE_MONTHS, removal_policy=RemovalPolicy.DESTROY
        )
        self.role: iam.IRole = role or iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description="Exports and deletes the file system of its stack",
        )
        self._allow(data_lake)
        self.environment: dict[str, str] = {
            "GATE_TAG": self._tag,
            "REPORT_URI": data_lake.s3_uri(prefix),
            "POLL_SECONDS": f"{poll.to_seconds():g}",
            # A refusal must come before the framework's time is over, which has no reason to give.
            "WAIT_SECONDS": f"{limit.to_seconds() - _LAST_POLLS * poll.to_seconds():g}",
            "METRIC_PERIOD_SECONDS": f"{(metric_period or _METRIC_PERIOD).to_seconds():g}",
        }
        self.functions: tuple[lambda_.Function, lambda_.Function] = (
            self._function("Begin", "on_event", self.environment),
            self._function("Continue", "is_complete", self.environment),
        )
        self.provider = custom_resources.Provider(
            self,
            "Provider",
            on_event_handler=self.functions[0],
            is_complete_handler=self.functions[1],
            query_interval=poll,
            total_timeout=limit,
            log_group=self.log_group,
        )
        self._acknowledge_framework(self.provider)

        self.keeper = CustomResource(
            self,
            "Keeper",
            service_token=self.provider.service_token,
            resource_type="Custom::FileSystemKeeper",
            properties={"Kind": "keeper"},
        )
        for needed in (*file_system.network, *network):
            self.keeper.node.add_dependency(needed)
        file_system.put_behind_gate(keeper=self.keeper, tags={GATE: self._tag})
        self.links: list[dict[str, str]] = [
            {
                "Path": link.file_system_path,
                "Exported": str(link.writable and not _is_named(link.file_system_path, disposable_paths)).lower(),
            }
            for link in file_system.links
        ]
        # For `training-storage park`, when gate and stack are gone and the file system is not. Without it every link
        # is exported.
        exported = paths_value([link["Path"] for link in self.links if link["Exported"] == "true"])
        if exported is not None:
            file_system.resource.tags.set_tag(EXPORTED_PATHS, exported)
        self.gate = CustomResource(
            self,
            "Gate",
            service_token=self.provider.service_token,
            resource_type="Custom::FinalExport",
            properties={
                "Kind": "gate",
                "FileSystemId": file_system.file_system_id,
                "Links": self.links,
            },
        )
        for needed in (file_system, *file_system.links, *network):
            self.gate.node.add_dependency(needed)

    def _function(self, id: str, handler: str, environment: dict[str, str]) -> lambda_.Function:
        return lambda_.Function(
            self,
            id,
            description=f"Final export of {Stack.of(self).stack_name}: {handler}",
            runtime=lambda_.Runtime.PYTHON_3_13,
            handler=f"{_PACKAGE}.handler.{handler}",
            # The folder alone, so that the code imports nothing that is not shipped with it.
            code=lambda_.Code.from_asset(
                str(_CODE),
                exclude=["*", f"!{_PACKAGE}", f"!{_PACKAGE}/*.py"],
                ignore_mode=IgnoreMode.GIT,
            ),
            role=self.role,
            timeout=_FUNCTION_TIMEOUT,
            memory_size=_MEMORY_MIB,
            log_group=self.log_group,
            environment=environment,
        )

    def _allow(self, data_lake: DataLakeBase) -> None:
        """Let the function touch what carries this gate's tag, and nothing else.

        Neither custom resource can name the file system in its policy: the keeper is there before it, and when a file
        system is replaced, the policy names the new one before the gate has finished the old one. The tag is set at
        creation, and the function can set it on nothing but its own tasks.
        """
        grant = self.role.add_to_principal_policy
        systems, links, tasks = (self._arn(kind) for kind in ("file-system", "association", "task"))
        grant(
            iam.PolicyStatement(
                sid="FileSystemAndLinks",
                actions=[
                    "fsx:CreateDataRepositoryTask",
                    "fsx:DeleteFileSystem",
                    "fsx:TagResource",
                    "fsx:UntagResource",
                    "fsx:UpdateDataRepositoryAssociation",
                ],
                resources=[systems, links],
                conditions={"StringEquals": {f"aws:ResourceTag/{GATE}": self._tag}},
            )
        )
        grant(
            iam.PolicyStatement(
                sid="ExportTasks",
                actions=["fsx:CreateDataRepositoryTask", "fsx:TagResource"],
                resources=[tasks],
                conditions={"StringEquals": {f"aws:RequestTag/{GATE}": self._tag}},
            )
        )
        grant(
            iam.PolicyStatement(
                sid="Describe",
                actions=[
                    "cloudwatch:GetMetricData",
                    "fsx:DescribeDataRepositoryAssociations",
                    "fsx:DescribeDataRepositoryTasks",
                    "fsx:DescribeFileSystems",
                ],
                resources=["*"],
            )
        )
        grant(
            iam.PolicyStatement(
                sid="OwnStack", actions=["cloudformation:DescribeStacks"], resources=[Stack.of(self).stack_id]
            )
        )
        grant(
            iam.PolicyStatement(
                sid="OwnLog",
                actions=["logs:CreateLogStream", "logs:PutLogEvents"],
                resources=[self.log_group.log_group_arn],
            )
        )
        reports = data_lake.bucket.arn_for_objects(f"{self.report_prefix}*")
        grant(iam.PolicyStatement(sid="Reports", actions=["s3:GetObject", "s3:PutObject"], resources=[reports]))
        grant(
            iam.PolicyStatement(
                # Without it S3 says that a report is denied where there is none.
                sid="ListReports",
                actions=["s3:ListBucket"],
                resources=[data_lake.bucket.bucket_arn],
                conditions={"StringLike": {"s3:prefix": [f"{self.report_prefix}*"]}},
            )
        )
        grant(
            iam.PolicyStatement(
                sid="LakeKey",
                actions=["kms:Decrypt", "kms:GenerateDataKey"],
                resources=[data_lake.encryption_key.key_arn],
            )
        )
        acknowledge_wildcards(
            self.role,
            resources=[systems, links, tasks],
            reason="Only what carries the tag of this gate: ids are not known before the file system is.",
        )
        acknowledge_wildcards(self.role, resources=["*"], reason="Describe actions and metrics take no resource.")
        acknowledge_wildcards(
            self.role, resources=[reports], reason="The wildcard ends within the prefix of the reports."
        )
        # log_group_arn ends in ":*": its streams.
        acknowledge_wildcards(
            self.role, resources=[self.log_group.log_group_arn], reason="Streams of its own log group."
        )

    def _arn(self, kind: str) -> str:
        return Stack.of(self).format_arn(service="fsx", resource=kind, resource_name="*")

    def _acknowledge_framework(self, provider: custom_resources.Provider) -> None:
        """Acknowledge what CDK's own framework is made of, finding by finding."""
        basic = "Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
        acknowledge(provider, rule=f"IAM4[{basic}]", reason="CDK's provider framework: it may write its log.")
        waiter = "CDK's provider framework: it only repeats the poll, and every poll is in the function's log."
        for rule in ("SF1", "SF2"):
            acknowledge(provider, rule=rule, reason=waiter)
        for function in self.functions:
            acknowledge(function, rule="L1", reason="The version of Python that the library is tested with.")
        frameworks = [
            child
            for name in ("onEvent", "isComplete", "onTimeout")
            if isinstance(child := provider.node.find_child(f"framework-{name}"), lambda_.Function)
        ]
        calls: list[tuple[iam.IGrantable, Sequence[lambda_.IFunction]]] = [(f, self.functions) for f in frameworks]
        waiter_role = provider.node.find_child("waiter-state-machine").node.find_child("Role")
        if isinstance(waiter_role, iam.Role):
            calls.append((waiter_role, frameworks[1:]))
        for caller, called in calls:
            acknowledge_wildcards(
                caller,
                resources=[f"{function.function_arn}:*" for function in called],
                reason="CDK's provider framework: any version of the one function that it calls.",
            )


def _longest() -> int:
    return custom_resource_seconds_maximum() - _SPARE_SECONDS


def _require_metric_period(period: Duration | None) -> None:
    if period is not None and period.to_seconds() < 1:
        raise ConstructError(f"metric_period must be at least a second, got: {period.to_seconds():g} seconds")


def _directory(path: str) -> str:
    return "/" + path.strip("/")


def _is_named(path: str, paths: Sequence[str]) -> bool:
    return _directory(path) in map(_directory, paths)


def _require_one_stack(scope: Construct, file_system: LustreFileSystem) -> None:
    """Refuse a gate whose file system or links are in another stack: they are made before it and go after it."""
    theirs = Stack.of(file_system).node.path
    parts = {"the FinalExport": scope, **{f"the link of {link.file_system_path}": link for link in file_system.links}}
    for what, part in parts.items():
        ours = Stack.of(part).node.path
        if ours != theirs:
            raise ConstructError(
                f"a file system with a FinalExport, the gate and all links must be in one stack, got: the file system"
                f" in {theirs}, {what} in {ours}; no two stacks can be made and deleted in this order"
            )


def _require_links(file_system: LustreFileSystem, disposable_paths: Sequence[str]) -> None:
    if isinstance(disposable_paths, str):
        raise ConstructError(f"disposable_paths must be a list such as ['/checkpoints'], got: {disposable_paths!r}")
    linked = [link.file_system_path for link in file_system.links]
    for path in disposable_paths:
        if not _is_named(path, linked):
            raise ConstructError(
                f"disposable_paths must name linked paths ({', '.join(linked) or 'there are none'}), got: {path!r};"
                " what is not linked is never exported"
            )


def _report_prefix(file_system: LustreFileSystem, job_name: str) -> str:
    logs_prefix = f"logs/{job_name}/"
    prefixes = [link.prefix for link in file_system.links if link.writable]
    if not prefixes or logs_prefix in prefixes:
        return f"{logs_prefix}final-export/"
    return f"{prefixes[0]}final-export/"


def _require_linked_prefix(file_system: LustreFileSystem, prefix: str) -> None:
    require_match(
        prefix,
        r"([^/*?]+/)+",
        what="report_prefix",
        allowed="a path that ends with a slash and has no wildcard, such as 'logs/default/final-export/'",
    )
    prefixes = [link.prefix for link in file_system.links]
    exports = any(link.writable for link in file_system.links)
    if exports and not is_token(prefix) and not any(prefix.startswith(linked) for linked in prefixes):
        raise ConstructError(
            f"report_prefix must lie within a linked prefix ({', '.join(prefixes)}), got: {prefix!r}; FSx writes"
            " completion reports nowhere else"
        )
