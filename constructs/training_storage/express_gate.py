"""The gate of a directory bucket: it is emptied only after what is worth keeping is in the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_cdk import CustomResource, Duration, Stack, custom_resources
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from training_storage.acknowledgements import acknowledge, acknowledge_wildcards
from training_storage.checkpoint_archive import (
    allow_archive,
    archive_environment,
    make_log_and_role,
)
from training_storage.operations_code import operations_code
from training_storage.planning.catalog.cloudformation import custom_resource_seconds_maximum
from training_storage.validation import require_flags, require_job_name, require_kinds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from training_storage.data_lake import DataLakeBase
    from training_storage.directory_bucket import DirectoryBucket

__all__ = ["ExpressGate"]

_POLL = Duration.seconds(30)
# A poll works as long as Lambda lets it; the framework then asks again.
_FUNCTION_TIMEOUT = Duration.minutes(15)
# Left to say why, before CloudFormation gives up. The framework, which knows no reason, waits longer.
_SPARE_SECONDS = 300
_FRAMEWORK_SPARE_SECONDS = 120
# Copies that the bucket may hold beside checkpoints; the gate looks in the lake for them.
_COPIED_PREFIX = "datasets/"
_MEMORY_MIB = 1024


class ExpressGate(Construct):
    """When the stack is deleted: brings the newest complete checkpoint into the lake, then empties the bucket.

    CloudFormation deletes a directory bucket only when it is empty. If the checkpoint cannot be brought into the lake,
    or the bucket holds anything else that the lake lacks and no newer complete checkpoint makes superfluous, the
    deletion fails with the reason and the command that helps, and bucket and gate stand. It also fails, with the
    reason, before CloudFormation's hour is over.
    An update never empties anything. Let whatever writes to the bucket depend on this construct, so that it goes first.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    directory_bucket
        The bucket, with checkpoints under `checkpoints/<job_name>/`. All of it is emptied.
    data_lake
        Where the newest checkpoint goes, under the same prefix.
    job_name
        Name of the job.
    disposable
        Whether the checkpoints may be lost: then the bucket is emptied without looking.
    role
        Role of the caller for the functions; one of its own if none is given. It must let lambda.amazonaws.com assume
        it; what the functions need is granted to it.

    Attributes
    ----------
    functions, role, log_group, provider
        What does it; `provider` is CDK's framework, which calls the functions.
    resource
        The custom resource.

    Raises
    ------
    ConstructError
        For a job's name that is no folder of the lake.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        directory_bucket: DirectoryBucket,
        data_lake: DataLakeBase,
        job_name: str,
        disposable: bool = False,
        role: iam.IRole | None = None,
    ) -> None:
        require_job_name(job_name)
        require_flags(disposable=disposable)
        require_kinds(needed=("directory_bucket", "data_lake"), directory_bucket=directory_bucket, data_lake=data_lake)
        super().__init__(scope, id)
        self.log_group, self.role = make_log_and_role(
            self, description=f"Empties the directory bucket of {job_name}", role=role
        )
        directory_bucket.grant_read_write(self.role)
        if not disposable:
            allow_archive(self.role, data_lake, prefix=f"checkpoints/{job_name}/", prune=False)
            self._allow_comparing(data_lake)
        wait_seconds = custom_resource_seconds_maximum() - _SPARE_SECONDS
        environment = {
            **archive_environment(directory_bucket, data_lake, job_name),
            # Of no use here, and asked for by what both functions share.
            "DURABLE_INTERVAL_MINUTES": "1",
            "DURABLE_KEPT": "0",
            "DISPOSABLE": str(disposable).lower(),
            "WAIT_SECONDS": f"{wait_seconds:g}",
        }
        self.functions: tuple[lambda_.Function, lambda_.Function] = (
            self._function("Begin", "on_event", environment),
            self._function("Continue", "is_complete", environment),
        )
        self.provider = custom_resources.Provider(
            self,
            "Provider",
            on_event_handler=self.functions[0],
            is_complete_handler=self.functions[1],
            query_interval=_POLL,
            total_timeout=Duration.seconds(custom_resource_seconds_maximum() - _FRAMEWORK_SPARE_SECONDS),
            log_group=self.log_group,
        )
        self._acknowledge_framework(self.provider)
        self.resource = CustomResource(
            self, "Gate", service_token=self.provider.service_token, resource_type="Custom::ExpressGate"
        )
        # Deleted before the bucket and before what lets the function in.
        self.resource.node.add_dependency(directory_bucket, self.role)

    def _allow_comparing(self, data_lake: DataLakeBase) -> None:
        """Let the gate see whether copies of data sets are in the lake."""
        objects = data_lake.bucket.arn_for_objects(f"{_COPIED_PREFIX}*")
        self.role.add_to_principal_policy(
            iam.PolicyStatement(sid="LakeCopies", actions=["s3:GetObject"], resources=[objects])
        )
        self.role.add_to_principal_policy(
            iam.PolicyStatement(
                sid="LakeCopiesList",
                actions=["s3:ListBucket"],
                resources=[data_lake.bucket.bucket_arn],
                conditions={"StringLike": {"s3:prefix": [f"{_COPIED_PREFIX}*"]}},
            )
        )
        acknowledge_wildcards(self.role, resources=[objects], reason="The wildcard ends within the lake's data sets.")

    def _function(self, id: str, handler: str, environment: dict[str, str]) -> lambda_.Function:
        function = lambda_.Function(
            self,
            id,
            description=f"Gate of the directory bucket of {Stack.of(self).stack_name}: {handler}",
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            handler=f"training_storage.operations.express_gate_function.{handler}",
            code=operations_code(),
            role=self.role,
            timeout=_FUNCTION_TIMEOUT,
            memory_size=_MEMORY_MIB,
            log_group=self.log_group,
            environment=environment,
        )
        acknowledge(function, rule="L1", reason="The version of Python that the library is tested with.")
        return function

    def _acknowledge_framework(self, provider: custom_resources.Provider) -> None:
        """Acknowledge what CDK's own framework is made of, finding by finding."""
        basic = "Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
        acknowledge(provider, rule=f"IAM4[{basic}]", reason="CDK's provider framework: it may write its log.")
        waiter = "CDK's provider framework: it only repeats the poll, and every poll is in the function's log."
        for rule in ("SF1", "SF2"):
            acknowledge(provider, rule=rule, reason=waiter)
        frameworks: list[Any] = [
            provider.node.find_child(f"framework-{name}") for name in ("onEvent", "isComplete", "onTimeout")
        ]
        callers: list[tuple[iam.IGrantable, Sequence[lambda_.Function]]] = [
            (framework.role, self.functions) for framework in frameworks
        ]
        waiter_role: Any = provider.node.find_child("waiter-state-machine").node.find_child("Role")
        callers.append((waiter_role, frameworks[1:]))
        for role, called in callers:
            acknowledge_wildcards(
                role,
                resources=[f"{function.function_arn}:*" for function in called],
                reason="CDK's provider framework: any version of the one function that it calls.",
            )
