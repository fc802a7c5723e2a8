"""Assertions on templates: they are legal, and updates lose no data."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from training_storage.planning.guard import Nested, NestedReader, compare
from training_storage.planning.legality import check_template
from training_storage.testing.normalisation import normalise
from training_storage.testing.sources import SynthesizedTemplate, read_some_templates, read_template

if TYPE_CHECKING:
    from collections.abc import Collection

    from training_storage.testing.sources import Source

__all__ = ["NotComparedWarning", "assert_legal", "assert_nothing_lost", "losses"]


class NotComparedWarning(UserWarning):
    """Part of two templates could not be compared, so that nothing is known of what an update does to it."""


def assert_legal(template: Source, *, region: str | None = None) -> None:
    """Fail if FSx for Lustre or S3 Express would refuse something in `template`.

    Parameters
    ----------
    template
        A stack, an app, a template, a ``cdk.out``; see `Source`. Of nested stacks only those of constructs and
        assemblies are seen.
    region
        Where it will be deployed, if the stack does not say so; rules about Regions are left out without it.

    Raises
    ------
    AssertionError
        Naming every finding.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    found = [
        f"{logical_id}: {message}"
        for one in read_some_templates(template)
        for logical_id, message in _illegal(normalise(one), region=region or one.region)
    ]
    if found:
        raise AssertionError("\n".join(found))


def _illegal(template: Mapping[str, Any], *, region: str | None) -> list[tuple[str, str]]:
    nested = {
        logical_id: inner
        for logical_id, resource in (template.get("Resources") or {}).items()
        if (inner := _inlined(resource)) is not None
    }
    report = check_template(template, region=region, nested_elsewhere=list(nested))
    return [
        *((found.logical_id, found.finding.message) for found in report.findings),
        *(
            (f"{outer}/{logical_id}", message)
            for outer, inner in nested.items()
            for logical_id, message in _illegal(inner, region=region)
        ),
    ]


def assert_nothing_lost(before: Source, after: Source, *, accept: Collection[str] = ()) -> None:
    """Fail if an update from `before` to `after` would replace or remove a resource with data.

    Parameters
    ----------
    before, after
        Two templates, such as the one last released (a file, a snapshot, `template_at` a revision) and a stack.
    accept
        Logical ids whose loss is meant; those of a nested stack are named ``Stack/Resource``.

    Raises
    ------
    AssertionError
        Naming every resource, what causes it, and what happens to its data.

    Warns
    -----
    NotComparedWarning
        For what could not be compared, such as a nested stack whose template is not at hand.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    found = losses(read_template(before), read_template(after), accept=accept)
    if found:
        raise AssertionError("\n".join(found))


def losses(before: SynthesizedTemplate, after: SynthesizedTemplate, *, accept: Collection[str] = ()) -> list[str]:
    """Return a line for each resource with data that an update would replace, remove or fail on."""
    region = after.region or before.region
    place = {"AWS::Region": region} if region else None
    compared = compare(
        normalise(before),
        normalise(after),
        parameters_before=place,
        parameters_after=place,
        nested_before=_read_inlined,
        nested_after=_read_inlined,
        accept=accept,
    )
    for note in compared.unchecked:
        warnings.warn(note, NotComparedWarning, stacklevel=3)
    return [f"{loss.logical_id}: {loss.message}" for loss in compared.losses if loss.logical_id not in accept]


def _inlined(resource: object) -> Mapping[str, Any] | None:
    """Return the template that a normalised nested stack holds; None for everything else."""
    properties = resource.get("Properties") if isinstance(resource, Mapping) else None
    url = properties.get("TemplateURL") if isinstance(properties, Mapping) else None
    return url if isinstance(url, Mapping) and "Resources" in url else None


def _read_inlined(_: str, resource: Mapping[str, Any]) -> Nested | None:
    inner = _inlined(resource)
    reader: NestedReader = _read_inlined
    return None if inner is None else Nested(template=inner, reader=reader)
