"""The command ``training-storage``."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from training_storage.planning import NoTierError, PlanningError, TrainingJob, plan_storage
from training_storage.planning.errors import InvalidJobError, did_you_mean
from training_storage.planning.report import report_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

_PROGRAM = "training-storage"
_DISTRIBUTION = "training-storage"
_OK, _BAD_INPUT, _NO_TIER = 0, 2, 3
#: Variables that name the caller's Region, the first that is set wins.
_REGION_VARIABLES = ("CDK_DEFAULT_REGION", "AWS_REGION")


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, like all the others."""

    def error(self, message: str) -> NoReturn:
        raise InvalidJobError(f"{message}. See {self.prog} --help.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    argv
        Arguments without the program's name; those of the process if None.

    Returns
    -------
    int
        0 with a plan, 2 for bad input, 3 where no tier can serve the job. Errors are one line on stderr.
    """
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except NoTierError as error:
        return _fail(error, _NO_TIER)
    except PlanningError as error:
        return _fail(error, _BAD_INPUT)
    except BrokenPipeError:
        # The reader has seen enough. Without this the interpreter complains again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _OK


def _run(argv: Sequence[str]) -> int:
    arguments = _parse(argv)
    values = {
        name: value for name in TrainingJob.field_names() if (value := getattr(arguments, name, None)) is not None
    }
    if "instances" not in values:
        raise InvalidJobError(
            f"--instances is missing: say how many nodes the cluster has, for example {_PROGRAM} plan --instances 256."
        )
    region = next((os.environ[name] for name in _REGION_VARIABLES if os.environ.get(name)), None)
    plan = plan_storage(TrainingJob.from_strings(values), environment_region=region)
    if arguments.out is not None:
        _write(Path(arguments.out), plan.to_json(), force=arguments.force)
    text = plan.to_json() if arguments.json else "\n".join(report_lines(plan)) + "\n"
    sys.stdout.write(text)
    sys.stdout.flush()
    return _OK


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(
        prog=_PROGRAM, description="From one number to the right training storage on AWS.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"{_PROGRAM} {_version()}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)
    plan = verbs.add_parser("plan", help="plan the storage of a training job", allow_abbrev=False)
    for name in TrainingJob.field_names():
        plan.add_argument(_option(name), dest=name, metavar="VALUE", help=TrainingJob.field_help(name))
    plan.add_argument("--json", action="store_true", help="print the plan as JSON")
    plan.add_argument(
        "--out", metavar="FILE", help="write the plan as JSON to FILE as well, to deploy it with -c plan=FILE"
    )
    plan.add_argument("--force", action="store_true", help="let --out replace an existing file")
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        options = [*map(_option, TrainingJob.field_names()), "--json", "--out", "--force"]
        name = unknown[0].split("=", 1)[0]
        raise InvalidJobError(
            f"{name!r} is not an option of {_PROGRAM} {arguments.verb}.{did_you_mean(name, options)} "
            f"See {_PROGRAM} {arguments.verb} --help."
        )
    return arguments


def _version() -> str:
    """Return the installed version; a source tree on the path has none."""
    try:
        return metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _option(field: str) -> str:
    return "--" + field.replace("_", "-")


def _write(path: Path, text: str, *, force: bool) -> None:
    """Write `text` to `path` in one step: there is never half a plan under that name, and none is replaced unasked."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with draft.open("x", encoding="utf-8") as file:
            file.write(text)
        if force:
            draft.replace(path)
        else:
            path.hardlink_to(draft)
    except FileExistsError:
        raise InvalidJobError(
            f"--out must name a new file, got: '{path}', which exists. Add --force to replace it."
        ) from None
    except OSError as error:
        raise InvalidJobError(
            f"--out must name a file that can be written, got: '{path}' ({error.strerror})."
        ) from None
    finally:
        draft.unlink(missing_ok=True)


def _fail(error: PlanningError, code: int) -> int:
    sys.stderr.write(f"{_PROGRAM}: {' '.join(str(error).split())}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
