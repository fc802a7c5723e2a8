"""The node kit: what makes storage usable on a node, and says loudly when it is not.

The shell scripts, checks and systemd units beside this file are one S3 asset. User data downloads it at an instance's
first boot and runs `install.sh`; docs/node-kit.md says what happens then.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as assets
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from training_storage.acknowledgements import acknowledge_wildcards
from training_storage.planning.catalog.capacity_blocks import capacity_blocks
from training_storage.validation import ConstructError, require_integer, require_match, require_one_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["METRIC_NAME", "METRIC_NAMESPACE", "NodeKit"]

_FOLDER = Path(__file__).parent

METRIC_NAMESPACE = "TrainingStorage"
METRIC_NAME = "NodeCheckFailed"
"""1 where a check failed and 0 where it passed, with dimension Job, and with Job and Check for each check."""

_ROLES = ("compute", "login")
_PURCHASES = ("on-demand", "spot", "capacity-block")


class NodeKit(Construct):
    """Lustre client, EFA, scratch, mounts, tuning and checks for the nodes of one job.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    contract_parameter
        SSM parameter that holds the storage contract, or its name.
    job_name
        Dimension Job of the metrics; `default` for the job without a name.
    engine
        How a node is drained: one of `NodeKit.engines()`.
    purchase
        on-demand, spot or capacity-block; nodes of a Capacity Block say when it ends.
    block_end_minutes
        How long before the end of a Capacity Block EC2 terminates its instances; the catalog's `end_minutes` if none is
        given, which is that of instances. Nodes of UltraServers need `ultraserver_end_minutes`.

    Attributes
    ----------
    asset
        The kit as a zip file.
    apis
        AWS APIs that the kit calls from a node besides S3, by the names of their endpoints. Packages that the image
        lacks come from elsewhere: docs/node-kit.md says from where, and what of it a network without a way out reaches.

    Raises
    ------
    ConstructError
        For an engine, a purchase option or a job name that is none.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        contract_parameter: ssm.IStringParameter | str,
        job_name: str,
        engine: str,
        purchase: str,
        block_end_minutes: int | None = None,
    ) -> None:
        require_one_of(engine, self.engines(), what="engine of the node kit")
        require_one_of(purchase, _PURCHASES, what="purchase")
        require_match(
            job_name,
            r"[a-z][a-z0-9-]{0,29}",
            what="job_name",
            allowed="a lowercase letter, then at most 29 lowercase letters, digits or hyphens",
        )
        if block_end_minutes is not None:
            require_integer(block_end_minutes, what="block_end_minutes", minimum=1)
        super().__init__(scope, id)
        self.job_name = job_name
        self.engine = engine
        self.purchase = purchase
        self.block_end_minutes = capacity_blocks().end_minutes if block_end_minutes is None else block_end_minutes
        if isinstance(contract_parameter, str):
            self._parameter_name = contract_parameter
            self._parameter_arn = Stack.of(self).format_arn(
                service="ssm",
                resource="parameter",
                resource_name=contract_parameter.removeprefix("/"),
                arn_format=ArnFormat.SLASH_RESOURCE_NAME,
            )
        else:
            self._parameter_name = contract_parameter.parameter_name
            self._parameter_arn = contract_parameter.parameter_arn
        self.asset = assets.Asset(
            self, "Asset", path=str(_FOLDER), exclude=["__init__.py", "__pycache__", "**/__pycache__"]
        )
        self.apis: tuple[str, ...] = ("ssm", "monitoring", *(("ec2",) if purchase == "capacity-block" else ()))

    @staticmethod
    def engines() -> tuple[str, ...]:
        """Return the engines that the kit can drain a node in: a file each in `engines/`."""
        return tuple(sorted(path.stem for path in (_FOLDER / "engines").glob("*.sh")))

    def commands(self, *, role: str, capacity_reservation_ids: Sequence[str] = ()) -> list[str]:
        """Return shell lines for user data that install the kit and set the storage up.

        They end the script that holds them when one fails, so they belong at its end or into a script of their own. A
        kit that cannot be installed is told as a failed check named `install`.
        The image must have bash, Python 3.9 or newer and version 2 of the AWS CLI.

        Parameters
        ----------
        role
            compute; or login, which mounts over TCP, only reports, and is never drained.
        capacity_reservation_ids
            Capacity Blocks that these nodes start in; those of all nodes for the login node. Needed for purchase
            capacity-block.

        Raises
        ------
        ConstructError
            For a role that is none, and for nodes of a Capacity Block without its id.
        """
        require_one_of(role, _ROLES, what="role")
        options = {
            "parameter": self._parameter_name,
            "region": Stack.of(self).region,
            "job": self.job_name,
            "engine": self.engine,
            "role": role,
            "purchase": self.purchase,
        }
        if self.purchase == "capacity-block":
            if not capacity_reservation_ids:
                raise ConstructError(
                    f"capacity_reservation_ids must name the Capacity Blocks of {role} nodes for purchase"
                    " capacity-block, got: none"
                )
            options["capacity-reservations"] = " ".join(capacity_reservation_ids)
            options["block-end-minutes"] = str(self.block_end_minutes)
        arguments = " ".join(f"--{name} {shlex.quote(value)}" for name, value in options.items())
        # The network of a new node may not be up: the CLI tries for some minutes.
        download = (
            "AWS_RETRY_MODE=standard AWS_MAX_ATTEMPTS=10 aws s3 cp --only-show-errors"
            f" --region {shlex.quote(Stack.of(self).region)} {shlex.quote(self.asset.s3_object_url)}"
        )
        return [
            "set -euo pipefail",
            *self._tell_failure(role),
            'training_storage_kit="$(mktemp --directory)"',
            f'{download} "$training_storage_kit/kit.zip"',
            # Not unzip, which images may lack.
            'python3 -m zipfile -e "$training_storage_kit/kit.zip" "$training_storage_kit/kit"',
            f'bash "$training_storage_kit/kit/install.sh" {arguments}',
            "trap - EXIT",
        ]

    def _tell_failure(self, role: str) -> list[str]:
        """Return shell lines that say that the kit could not be installed: nothing of it may be there to do so.

        One step that fails does not keep the others from being tried. What a run of the checks has said stays.
        """
        dimension = f'{{"Name":"Job","Value":"{self.job_name}"}}'
        datum = f'{{"MetricName":"{METRIC_NAME}","Value":1,"Dimensions":['
        metrics = f'[{datum}{dimension}]}},{datum}{dimension},{{"Name":"Check","Value":"install"}}]}}]'
        send = (
            f"aws cloudwatch put-metric-data --region {shlex.quote(Stack.of(self).region)}"
            f" --namespace {METRIC_NAMESPACE} --metric-data {shlex.quote(metrics)}"
        )
        hooks = (
            '  for hook in "${KIT_ROOT:-}"/etc/training-storage/drain.d/*; do',
            '    if [ -f "$hook" ] && [ -x "$hook" ]; then "$hook" drain "training-storage: $reason"; fi',
            "  done",
            # So that the kit undrains the node once it could be installed by hand.
            '  printf "training-storage: %s\\n" "$reason" >"${KIT_ROOT:-}/var/lib/training-storage/drained"',
        )
        return [
            "training_storage_not_installed() {",
            "  status=$?",
            "  set +e",
            '  run="${KIT_ROOT:-}/run/training-storage"',
            '  if [ "$status" -eq 0 ] || [ -e "$run/unhealthy" ]; then exit "$status"; fi',
            '  reason="install: the node kit could not be installed (exit $status): see the log of user data"',
            '  echo "training-storage: not ready: $reason" >&2',
            '  mkdir -p "$run" "${KIT_ROOT:-}/var/lib/training-storage"',
            '  echo "$reason" >"$run/unhealthy"',
            '  rm -f "$run/ready"',
            *(hooks if role == "compute" else ()),
            f"  timeout 120 {send}",
            '  exit "$status"',
            "}",
            "trap training_storage_not_installed EXIT",
        ]

    def grant(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let `grantee`, the role of the nodes, do what the kit does, and nothing else.

        What the mounts read and write is granted by the tiers.
        """
        grant = iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["s3:GetObject"],
            resource_arns=[self.asset.bucket.arn_for_objects(self.asset.s3_object_key)],
        )
        grant = grant.combine(
            iam.Grant.add_to_principal(
                grantee=grantee, actions=["ssm:GetParameter"], resource_arns=[self._parameter_arn]
            )
        )
        # Service Authorization Reference, Amazon CloudWatch: PutMetricData takes no resource.
        grant = grant.combine(
            iam.Grant.add_to_principal(
                grantee=grantee,
                actions=["cloudwatch:PutMetricData"],
                resource_arns=["*"],
                conditions={"StringEquals": {"cloudwatch:namespace": METRIC_NAMESPACE}},
            )
        )
        if self.purchase == "capacity-block":
            grant = grant.combine(
                iam.Grant.add_to_principal(
                    grantee=grantee, actions=["ec2:DescribeCapacityReservations"], resource_arns=["*"]
                )
            )
        acknowledge_wildcards(
            grantee,
            resources=["*"],
            reason="PutMetricData, bound to one namespace, and the Describe actions of EC2 take no resource.",
        )
        return grant
