"""User data: what runs on a node before it takes work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import aws_ec2 as ec2

from training_storage.planning.catalog.network import user_data_bytes_maximum
from training_storage.validation import ConstructError

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHEBANG = "#!/bin/bash"
_SHELL = 'text/x-shellscript; charset="us-ascii"'


def shell_script(commands: Sequence[str]) -> str | None:
    """Return `commands` as one script; None without any.

    Raises
    ------
    ConstructError
        If there are more than an instance takes.
    """
    if not commands:
        return None
    return _bounded("\n".join([_SHEBANG, *commands, ""]))


def multipart(scripts: Sequence[Sequence[str]]) -> str | None:
    """Return `scripts` as a MIME multipart archive, a part for each that has commands; None without any.

    AWS PCS merges it with parts of its own, and runs shell scripts after it has registered a node and before it starts
    slurmd (AWS PCS user guide, working-with_ec2-user-data): no job comes before they have ended. A script that fails
    does not keep the next from running.

    Raises
    ------
    ConstructError
        If they are longer than an instance takes.
    """
    archive = ec2.MultipartUserData()
    parts = [commands for commands in scripts if commands]
    for commands in parts:
        archive.add_part(
            ec2.MultipartBody.from_raw_body(content_type=_SHELL, body="\n".join([_SHEBANG, *commands, ""]))
        )
    return _bounded(archive.render()) if parts else None


def _bounded(text: str) -> str:
    # Tokens make the text of synth longer or shorter than that of the deployment, by little.
    size, most = len(text.encode()), user_data_bytes_maximum()
    if size > most:
        raise ConstructError(
            f"boot_commands must be at most {most} bytes of user data, got: {size}; fetch a script of yours from S3"
        )
    return text
