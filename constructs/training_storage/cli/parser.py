"""What every verb of the command shares: one-line errors, and files that are never half written."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from training_storage.planning.errors import InvalidJobError, did_you_mean

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TextIO

PROGRAM = "training-storage"
OK = 0


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, like all the others."""

    def error(self, message: str) -> NoReturn:
        """Raise InvalidJobError."""
        raise InvalidJobError(f"{message}. See {self.prog} --help.")


# argparse gives the class of add_subparsers no public name.
Verbs: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001


def refuse_unknown(argument: str, arguments: argparse.Namespace) -> NoReturn:
    """Refuse an `argument` that the verb does not know, with the option that was probably meant.

    Raises
    ------
    InvalidJobError
        Always. The verb's parser must have set `options`, the list of its options.
    """
    name = argument.split("=", 1)[0]
    raise InvalidJobError(
        f"{name!r} is not an option of {PROGRAM} {arguments.verb}.{did_you_mean(name, arguments.options)} "
        f"See {PROGRAM} {arguments.verb} --help."
    )


def say(stream: TextIO, text: str) -> None:
    """Write text; what the terminal cannot show, such as half a surrogate pair in a logical id, is written escaped."""
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, errors="backslashreplace").decode(encoding))


def shown(text: str) -> str:
    """Return text in one line for a terminal: what others have written, a file's name say, must not steer it."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def os_reason(error: OSError) -> str:
    """Return what the system says, and of which file."""
    reason = error.strerror or str(error) or type(error).__name__
    return reason if error.filename is None else f"{error.filename}: {reason}"


def write_whole(path: Path, text: str, *, force: bool) -> None:
    """Write `text` to `path` in one step: there is never half a file under that name, and none is replaced unasked.

    Raises
    ------
    InvalidJobError
        If the file exists and `force` is off, or cannot be written.
    """
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
