"""A CDK app without any construct of this project: empty, or with the resources of given templates as bare L1.

Usage: ``python -m tests.benchmarks.bare_app [FOLDER OF TEMPLATES]``
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from aws_cdk import App, CfnResource, Stack

_ATTRIBUTES = ("DependsOn", "DeletionPolicy", "UpdateReplacePolicy", "Metadata", "Condition")


def main(folder: str | None) -> None:
    """Synthesize two stacks: empty ones, or one for each template of `folder`."""
    app = App()
    if folder is None:
        Stack(app, "First")
        Stack(app, "Second")
    else:
        for path in sorted(Path(folder).glob("*.template.json")):
            stack = Stack(app, path.name.split(".", 1)[0])
            for logical_id, resource in json.loads(path.read_text(encoding="utf-8"))["Resources"].items():
                made = CfnResource(stack, logical_id, type=resource["Type"], properties=resource.get("Properties", {}))
                made.override_logical_id(logical_id)
                for name in _ATTRIBUTES:
                    if name in resource:
                        made.add_override(name, resource[name])
    app.synth()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
