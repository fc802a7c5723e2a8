"""What stands around a page while its blocks run: a job in a local AWS, a node's folders, the reader's own names."""

from __future__ import annotations

import datetime as dt
import json
import re
import runpy
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aws_cdk import App

from app import build
from tests.docs.blocks import ROOT
from training_storage.checkpoint_format import MARKER_NAME, CheckpointFile, Marker
from training_storage.testing.deployment import deploy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aws_cdk.cx_api import CloudAssembly

    from training_storage.testing.deployment import Deployment
    from training_storage.testing.local_aws import LocalAws

JOB = "default"
STACK = "TrainingStorage"
_CONTEXT = {"instances": "2", "interface": "posix"}
_CONTRACT = f"/training-storage/{JOB}/contract"
#: Long enough ago for a checkpoint to be no longer under way.
_SAVED = dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC)
_TRANSITION_SECONDS = 0.02
# What a page writes for an id: with an ellipsis, or in AWS's own example's form.
_ID = r"-(?:…|0123456789abcdef0)"


def context_flags() -> dict[str, Any]:
    """Return the feature flags of the app's cdk.json."""
    flags: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    return flags


@dataclass(kw_only=True)
class LocalJob:
    """A small job with a file system in a local AWS, and the machine that the commands run on, as one of its nodes.

    Attributes
    ----------
    aws
        The local AWS.
    folder
        The node's root: `fsx`, `scratch` and `storage.json` are in it.
    """

    aws: LocalAws
    folder: Path
    _deployment: Deployment | None = None
    _saved: int = field(default=0)

    def stand(self) -> None:
        """Deploy the job unless it stands."""
        if self._deployment is not None and self._deployment.status(STACK):
            return
        app = App(context={**context_flags(), **_CONTEXT}, outdir=str(self.folder / f"cdk.out-{self._saved}"))
        build(app)
        self._deployment = deploy(app, aws=self.aws)
        self.aws.fsx_control(transition_seconds=_TRANSITION_SECONDS)
        self._mount()

    def _mount(self) -> None:
        """Let the contract say that the file system is mounted below this node's root."""
        ssm = self.aws.client("ssm")
        contract = json.loads(ssm.get_parameter(Name=_CONTRACT)["Parameter"]["Value"])
        moved = json.loads(
            json.dumps(contract).replace('"/fsx', f'"{self.folder}/fsx').replace('"/scratch', f'"{self.folder}/scratch')
        )
        # A data set has a shard for each reader at least; here it is small.
        moved["job"]["accelerators_per_instance"] = moved["loader"]["workers_per_accelerator"] = 1
        moved["endpoint"] = {"url": self.aws.endpoint_url, "addressing_style": "path", "checksums": "when_supported"}
        ssm.put_parameter(Name=_CONTRACT, Value=json.dumps(moved), Type="String", Overwrite=True)
        for folder in ("fsx/checkpoints", "fsx/datasets", "fsx/logs", "fsx/evaluations", "scratch/checkpoints"):
            (self.folder / folder).mkdir(parents=True, exist_ok=True)
        (self.folder / "storage.json").write_text(json.dumps(moved), encoding="utf-8")

    def physical_ids(self, kind: str) -> list[str]:
        """Return the ids of the job's resources of a type."""
        assert self._deployment is not None
        return [found.physical_id for found in self._deployment.resources(kind, stack=STACK)]

    def physical_id(self, kind: str) -> str:
        """Return the id of the first resource of a type."""
        return self.physical_ids(kind)[0]

    @property
    def lake(self) -> str:
        """Name of the lake's bucket."""
        contract: dict[str, Any] = json.loads((self.folder / "storage.json").read_text(encoding="utf-8"))
        return str(contract["s3"]["bucket"])

    def save_checkpoint(self, step: int) -> None:
        """Write a complete checkpoint to the file system, as a run does."""
        name, state = f"step-{step:010d}", "weights"
        files = (CheckpointFile(path="rank-0.pt", bytes=len(state), checksum=None),)
        marker = Marker(step=step, finished_at=_SAVED + dt.timedelta(minutes=step / 1000), files=files).to_json()
        written = {f"/checkpoints/{name}/rank-0.pt": state, f"/checkpoints/{name}/{MARKER_NAME}": marker}
        for path, text in written.items():
            file = self.folder / f"fsx{path}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        self.aws.fsx_control(files={self.physical_id("AWS::FSx::FileSystem"): written})


@dataclass(kw_only=True)
class Surroundings:
    """What one page sees.

    Attributes
    ----------
    page
        The page.
    folder
        The reader's folder; a temporary one.
    job
        The job in the local AWS; None for a page that needs none.
    aws
        A local AWS of the page's own, for one that deploys the reader's app.
    names
        The names of the page's Python blocks.
    """

    page: str
    folder: Path
    job: LocalJob | None
    names: dict[str, Any]
    aws: LocalAws | None = None
    _synthesized: dict[tuple[Path, tuple[tuple[str, str], ...]], CloudAssembly] = field(default_factory=dict)
    _deployment: Deployment | None = None

    def client(self, service: str) -> Any:
        """Return a client of the local AWS."""
        aws = self.job.aws if self.job else self.aws
        assert aws is not None, f"{self.page} calls AWS and runs without a local one"
        return aws.client(service)

    def of_this_job(self, text: str) -> str:
        """Return a block with names of what stands here in place of a page's placeholders."""
        if self.job is None:
            return text
        for pattern, value in self._placeholders():
            if re.search(pattern, text):
                text = re.sub(pattern, value(), text)
        return text

    def _placeholders(self) -> Iterator[tuple[str, Callable[[], str]]]:
        assert self.job is not None
        job, names = self.job, self.names
        yield r"s3://(?:BUCKET|LAKE|lake)/", lambda: f"s3://{job.lake}/"
        yield r"\b(?:BUCKET|LAKE)\b", lambda: job.lake
        # Whatever the page calls its job: the one that stands here.
        yield r"--job [A-Za-z]+", lambda: f"--job {JOB}"
        yield rf"(?<=s3://{job.lake}/checkpoints/)[a-z]+(?=/)", lambda: JOB
        yield r"--stack-name \w*Lake\b", lambda: "--stack-name TrainingDataLake"
        # Each reader is a shard to write here.
        yield r"--workers \d+", lambda: "--workers 1"
        yield r"\bREGION\b", lambda: job.aws.region
        yield r"\barn:…", lambda: f"arn:aws:sns:{job.aws.region}:000000000000:alarms"
        yield rf"\bfs{_ID}", lambda: names.get("file_system_id") or job.physical_id("AWS::FSx::FileSystem")
        yield rf"\bvpc{_ID}", lambda: names.get("vpc_id") or job.physical_id("AWS::EC2::VPC")
        yield rf"\bsubnet{_ID}", lambda: names.get("subnet_id") or job.physical_id("AWS::EC2::Subnet")
        yield r"(?<= )/(?=fsx|scratch)", lambda: f"{job.folder}/"

    def settle(self) -> None:
        """Wait as long as a link changes, which a reader's next line comes after."""
        time.sleep(3 * _TRANSITION_SECONDS)

    def links(self) -> list[str]:
        """Return the ids of the links of the job's file system."""
        return [] if self.job is None else self.job.physical_ids("AWS::FSx::DataRepositoryAssociation")

    def cdk(self, arguments: Sequence[str]) -> str:
        """Synthesize what a `cdk` command would deploy, and look for its stacks; a reader's own app is deployed."""
        command, *rest = arguments
        if command not in ("deploy", "synth", "diff", "destroy", "ls", "list"):
            return ""
        pairs = [rest[at + 1] for at, word in enumerate(rest[:-1]) if word in ("-c", "--context")]
        context = dict(pair.split("=", 1) for pair in pairs)
        reserved = context.get("capacity_reservation_ids", "").split(",")
        if "cr-…" in reserved:
            context["capacity_reservation_ids"] = ",".join(f"cr-{at:017x}" for at in range(len(reserved)))
        # The reader is in an app's folder: a copy, the example's own, or the repository.
        own = (ROOT / self.page).parent
        app_folder = next(path for path in (Path.cwd(), own, ROOT) if (path / "app.py").exists())
        assembly = self._assembly(app_folder, context)
        stacks = {stack.id for stack in assembly.stacks}
        values = {
            rest[at + 1] for at, word in enumerate(rest[:-1]) if word in ("-c", "--context", "--require-approval")
        }
        asked = {word for word in rest if not word.startswith("-") and word not in values}
        assert asked <= stacks, f"cdk {command} names {sorted(asked - stacks)}; the app has {sorted(stacks)}"
        if self.aws is not None:
            if command == "deploy":
                self._deployment = deploy(assembly.directory, aws=self.aws)
            elif command == "destroy" and self._deployment is not None:
                self._deployment.destroy(unprotect=True)
        return ""

    def _assembly(self, app_folder: Path, context: dict[str, str]) -> CloudAssembly:
        """Return what an app synthesizes, once a page: by its `build`, or as the script that it is."""
        key = (app_folder, tuple(sorted(context.items())))
        if key not in self._synthesized:
            sys.path.insert(0, str(app_folder))
            try:
                names = runpy.run_path(str(app_folder / "app.py"))
            finally:
                sys.path.remove(str(app_folder))
            if "build" in names:
                flags = json.loads((app_folder / "cdk.json").read_text(encoding="utf-8")).get("context", {})
                app = App(context={**flags, **context}, outdir=str(Path.cwd() / "cdk.out"))
                names["build"](app)
            else:
                app = names["app"]
            self._synthesized[key] = app.synth()
        return self._synthesized[key]
