"""``training-storage plan``: plan the storage of a job."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from training_storage.cli.parser import OK, PROGRAM, Verbs, write_whole
from training_storage.planning import TrainingJob
from training_storage.planning.errors import InvalidJobError
from training_storage.planning.planner import plan_of
from training_storage.planning.solution import solve

if TYPE_CHECKING:
    import argparse

#: What shells say of a program that Ctrl-C ended.
_INTERRUPTED = 130
#: Columns where the output is no terminal.
_COLUMNS = 100
#: Variables that name the caller's Region, the first that is set wins.
_REGION_VARIABLES = ("CDK_DEFAULT_REGION", "AWS_REGION")


def add_verb(verbs: Verbs) -> None:
    """Add the verb with every field of a job as an option."""
    parser = verbs.add_parser("plan", help="plan the storage of a training job", allow_abbrev=False)
    for name in TrainingJob.field_names():
        parser.add_argument(_option(name), dest=name, metavar="VALUE", help=TrainingJob.field_help(name))
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    parser.add_argument("--explain", action="store_true", help="print every formula with its numbers as well")
    parser.add_argument(
        "--out", metavar="FILE", help="write the plan as JSON to FILE as well, to deploy it with -c plan=FILE"
    )
    parser.add_argument("--force", action="store_true", help="let --out replace an existing file")
    options = [*map(_option, TrainingJob.field_names()), "--json", "--explain", "--out", "--force"]
    parser.set_defaults(run=_run, options=options)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.json and arguments.explain:
        raise InvalidJobError("--explain goes with the report, got: --json as well. Leave one of them out.")
    values = {
        name: value for name in TrainingJob.field_names() if (value := getattr(arguments, name, None)) is not None
    }
    if not values and not (arguments.json or arguments.explain or arguments.out):
        # Loaded here, and not by whoever gives options: a plan must start fast.
        from training_storage.cli import questions  # noqa: PLC0415

        if questions.can_ask():
            try:
                values = questions.ask(width=min(_width(), _COLUMNS))
            except KeyboardInterrupt:
                sys.stderr.write(f"\n{PROGRAM}: interrupted, nothing was planned.\n")
                return _INTERRUPTED
    if "instances" not in values:
        raise InvalidJobError(
            f"--instances is missing: say how many nodes the cluster has, for example {PROGRAM} plan --instances 256."
        )
    region = next((os.environ[name] for name in _REGION_VARIABLES if os.environ.get(name)), None)
    solution = solve(TrainingJob.from_strings(values), environment_region=region)
    plan = plan_of(solution)
    if arguments.out is not None:
        write_whole(Path(arguments.out), plan.to_json(), force=arguments.force)
    if arguments.json:
        text = plan.to_json()
    else:
        # Loaded here: plans as JSON need no words.
        from training_storage.planning.report import report_lines  # noqa: PLC0415

        width = _width()
        text = "\n".join(report_lines(plan, solution, width=width)) + "\n"
        if arguments.explain:
            from training_storage.planning.explain import explain_lines  # noqa: PLC0415

            text += "\n" + "\n".join(explain_lines(solution, width=width)) + "\n"
    sys.stdout.write(text)
    sys.stdout.flush()
    return OK


def _width() -> int:
    """Return the columns of the terminal, or what COLUMNS says; like shutil, which takes longer to load than to ask."""
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdigit() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS


def _option(field: str) -> str:
    return "--" + field.replace("_", "-")
