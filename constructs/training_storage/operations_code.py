"""The operations package as the code of Lambda functions."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import IgnoreMode
from aws_cdk import aws_lambda as lambda_

#: The folder that holds the package: constructs/ here, site-packages once it is installed.
_ROOT = Path(__file__).parents[1]
#: What operations import, and no more: they run without CDK. Patterns as in .gitignore, the last that fits counts.
_SHIPPED = (
    "/*",
    "!/training_storage",
    "/training_storage/*",
    "!/training_storage/__init__.py",
    "!/training_storage/checkpoint_format.py",
    "!/training_storage/operations",
    "/training_storage/operations/*",
    "!/training_storage/operations/*.py",
    "!/training_storage/planning",
    "__pycache__",
)


#: The gate's logic, for those that need it too.
_FINAL_EXPORT = (
    "!/training_storage/operations/final_export",
    "/training_storage/operations/final_export/*",
    "!/training_storage/operations/final_export/*.py",
)


def operations_code(*, final_export: bool = False) -> lambda_.AssetCode:
    """Return the code from which ``training_storage.operations.<module>.<function>`` is a handler.

    Parameters
    ----------
    final_export
        Whether the package `final_export` is shipped as well.
    """
    shipped = [*_SHIPPED, *(_FINAL_EXPORT if final_export else ())]
    return lambda_.Code.from_asset(str(_ROOT), exclude=shipped, ignore_mode=IgnoreMode.GIT)
