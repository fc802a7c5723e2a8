"""A CDK app without any construct of this project: empty, or with the resources of given templates as bare L1.

Usage: ``python -m tests.benchmarks.bare_app [FOLDER OF TEMPLATES]``
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from aws_cdk import App, CfnParameter, CfnResource, CfnWaitConditionHandle, Stack

_ATTRIBUTES = ("DependsOn", "DeletionPolicy", "UpdateReplacePolicy", "Metadata", "Condition")


def main(folder: str | None) -> None:
    """Synthesize two all but empty stacks, or one for each template of `folder`."""
    app = App()
    if folder is None:
        for name in ("First", "Second"):
            # A stack without any resource does not pass CDK's own validation.
            CfnWaitConditionHandle(Stack(app, name), "Handle")
    else:
        for path in sorted(Path(folder).glob("*.template.json")):
            _fill(Stack(app, path.name.split(".", 1)[0]), json.loads(path.read_text(encoding="utf-8")))
    app.synth()


def _fill(stack: Stack, template: dict[str, Any]) -> None:
    for name, parameter in template.get("Parameters", {}).items():
        # CDK adds its own version parameter to every stack.
        if name != "BootstrapVersion":
            made = CfnParameter(stack, name, type=parameter["Type"], default=parameter["Default"])
            made.override_logical_id(name)
    for logical_id, resource in template["Resources"].items():
        bare = CfnResource(stack, logical_id, type=resource["Type"], properties=resource.get("Properties", {}))
        bare.override_logical_id(logical_id)
        for name in _ATTRIBUTES:
            if name in resource:
                bare.add_override(name, resource[name])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
