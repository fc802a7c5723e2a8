"""What ``training-storage archive`` prints, as text or JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Any

from training_storage.cli.parser import say
from training_storage.operations.archive_cost import archive_cost
from training_storage.operations.archive_settings import S3Place
from training_storage.operations.aws_calls import region_of
from training_storage.planning.text import usd, wrapped
from training_storage.planning.units import GIB

if TYPE_CHECKING:
    from training_storage.operations.archive import Archive, ArchivePlan, ArchiveResult, Choice
    from training_storage.operations.archive_cost import ArchiveCost
    from training_storage.operations.archive_prune import PrunePlan
    from training_storage.operations.archive_settings import ArchiveSettings

SCHEMA_VERSION = 1


@dataclasses.dataclass(kw_only=True)
class Report:
    """What is known at the end, as text or JSON."""

    settings: ArchiveSettings
    archive: Archive
    as_json: bool
    dry: bool
    plan: ArchivePlan | None = None
    result: ArchiveResult | None = None
    pruned: PrunePlan | None = None
    removed: bool = False

    def print(self) -> None:
        """Print it."""
        text = json.dumps(self._document(), indent=2) + "\n" if self.as_json else "\n".join(self._lines()) + "\n"
        say(sys.stdout, text)
        with contextlib.suppress(ValueError):
            sys.stdout.flush()

    @property
    def _express(self) -> bool:
        return isinstance(self.settings.source, S3Place)

    def _cost(self) -> ArchiveCost:
        still = self.plan.open if self.plan else ()
        return archive_cost(
            [choice.found.files[path].bytes for choice in still for path in choice.missing],
            checkpoints=len(still),
            region=region_of(self.settings.region),
            express=self._express,
            part_mib=self.archive.part_mib,
        )

    def _lines(self) -> list[str]:
        lines = []
        if self.plan is None:
            lines += wrapped(f"Checkpoints of job {self.settings.job} are written to the lake itself: nothing to copy.")
        elif self.dry:
            lines += self._dry_lines(self.plan)
        else:
            lines += self._done_lines(self.plan)
        if self.pruned is not None:
            lines += self._prune_lines(self.pruned)
        return lines

    def _dry_lines(self, plan: ArchivePlan) -> list[str]:
        lines = [f"From {plan.source.place} to {plan.lake.place}; nothing was written."]
        lines += [f"  {_line(choice)}" for choice in plan.choices]
        lines += [f"  {name}: left out, {reason}" for name, reason in plan.incomplete.items()]
        if not plan.open:
            return [*lines, "Nothing to do."]
        cost = self._cost()
        size = sum(choice.missing_bytes for choice in plan.open)
        lines += wrapped(
            f"To copy: {size / GIB:,.2f} GiB. Requests{' and reading from S3 Express' if self._express else ''}: "
            f"{usd(cost.once_usd)} once ({cost.put_requests:,} writes, {cost.get_requests:,} reads). In the lake: "
            f"{usd(cost.per_month_usd)} per month. Prices of {cost.prices_as_of}.",
            first="",
        )
        return lines

    def _done_lines(self, plan: ArchivePlan) -> list[str]:
        result = self.result
        if result is None or not (result.published or result.unfinished):
            kept = sum(1 for choice in plan.choices if choice.state == "archived")
            due = "; none is due yet" if any(choice.state == "not due" for choice in plan.choices) else ""
            lines = [f"Nothing to do: {kept} of {len(plan.choices)} checkpoints worth keeping are in the lake{due}."]
        else:
            sizes = {choice.found.name: choice.found.bytes for choice in plan.choices}
            lines = [f"{name}: {sizes[name] / GIB:,.2f} GiB in {plan.lake.place}{name}/" for name in result.published]
        if result is not None:
            lines += [f"Moved {moved}." for moved in result.moved]
        return lines + [f"{name}: left out, {reason}" for name, reason in plan.incomplete.items()]

    def _prune_lines(self, pruned: PrunePlan) -> list[str]:
        if not pruned.goes:
            return ["Nothing in the lake to remove."]
        verb = "Removed" if self.removed else "Would remove (with --yes)"
        lines = [f"{verb}: {one.name}, {one.bytes / GIB:,.2f} GiB" for one in pruned.goes]
        return lines + [f"Stays: {name}, {reason}" for name, reason in pruned.stays.items()]

    def _document(self) -> dict[str, Any]:
        plan, result, pruned = self.plan, self.result, self.pruned
        cost = self._cost() if self.dry and plan is not None else None
        return {
            "schema_version": SCHEMA_VERSION,
            "job": self.settings.job,
            "source": plan.source.place if plan else self.settings.lake.uri,
            "lake": self.settings.lake.uri,
            "dry_run": self.dry,
            "checkpoints": [
                {
                    "name": choice.found.name,
                    "step": choice.found.step,
                    "why": choice.why,
                    "state": choice.state,
                    "bytes": choice.found.bytes,
                    "missing_bytes": choice.missing_bytes,
                }
                for choice in (plan.choices if plan else ())
            ],
            "incomplete": dict(plan.incomplete) if plan else {},
            "published": list(result.published) if result else [],
            "moved": list(result.moved) if result else [],
            "cost": None if cost is None else dataclasses.asdict(cost),
            "pruned": None
            if pruned is None
            else {
                "removed": self.removed,
                "goes": [{"name": one.name, "bytes": one.bytes} for one in pruned.goes],
                "stays": pruned.stays,
            },
        }


def _line(choice: Choice) -> str:
    size = choice.found.bytes / GIB
    state = {
        "new": f"{size:,.2f} GiB to copy",
        "begun": f"{choice.missing_bytes / GIB:,.2f} of {size:,.2f} GiB left to copy",
        "archived": "in the lake",
        "conflict": "the lake has another checkpoint of that name: left alone",
        "not due": "not due yet",
    }[choice.state]
    return f"{choice.found.name}: {state} ({choice.why})"
