"""The example apps: where they are, and what each synthesizes, once in this process."""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aws_cdk import App

from training_storage.testing import ComplianceFinding, compliance_findings

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
#: Those that are apps with `build(app)`.
APPS = ("data_lake", "lustre_two_links", "express_beside_batch", "pcs", "three_jobs")


@dataclass(frozen=True, kw_only=True)
class Example:
    """What an example makes.

    Parameters
    ----------
    app
        The app, synthesized.
    templates
        By stack name, in the order of deployment.
    findings
        What cdk-nag and the rules of the library find.
    """

    app: App
    templates: dict[str, dict[str, Any]]
    findings: tuple[ComplianceFinding, ...]

    def of_type(self, stack: str, kind: str) -> dict[str, dict[str, Any]]:
        """Resources of a stack by logical id."""
        resources = self.templates[stack]["Resources"]
        return {name: resource for name, resource in resources.items() if resource["Type"] == kind}

    def one(self, stack: str, kind: str) -> dict[str, Any]:
        """The only resource of its type."""
        (found,) = self.of_type(stack, kind).values()
        return found

    def actions(self, stack: str, *, sid_of: str) -> dict[str, list[Any]]:
        """What the policies of the role or policy whose logical id begins with `sid_of` allow: resources by action."""
        allowed: dict[str, list[Any]] = {}
        for name, policy in self.of_type(stack, "AWS::IAM::Policy").items():
            if not name.startswith(sid_of):
                continue
            for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
                for action in _list(statement["Action"]):
                    allowed.setdefault(action, []).extend(_list(statement["Resource"]))
        return allowed


def settings(name: str) -> dict[str, Any]:
    """The cdk.json of an example."""
    found: dict[str, Any] = json.loads((EXAMPLES / name / "cdk.json").read_text(encoding="utf-8"))
    return found


def module(name: str) -> Any:
    """The app.py of an example."""
    return importlib.import_module(f"examples.{name}.app")


def build(name: str, folder: Path, **context: str) -> App:
    """Build an example as `cdk synth -c KEY=VALUE …` does, to be synthesized into `folder`."""
    app = App(context={**settings(name)["context"], **context}, outdir=str(folder))
    module(name).build(app)
    return app


@functools.cache
def example(name: str) -> Example:
    """Synthesize an example as its cdk.json says."""
    folder = Path(tempfile.mkdtemp(prefix=f"example-{name}-"))
    # Kept for the whole process, as what is made of it is.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    app = build(name, folder)
    findings = compliance_findings(app, linter=False)
    templates = {stack.stack_name: json.loads(json.dumps(stack.template)) for stack in app.synth().stacks}
    return Example(app=app, templates=templates, findings=findings)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
