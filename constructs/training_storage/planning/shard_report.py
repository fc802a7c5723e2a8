"""A shard plan in words for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training_storage.planning.catalog.s3 import s3_limits
from training_storage.planning.catalog.shards import shard_figures
from training_storage.planning.size_words import decimal_size, duration
from training_storage.planning.text import rows, usd, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from training_storage.planning.sample_survey import DataSummary
    from training_storage.planning.shards import ShardPlan

_BAR_COLUMNS = 30
_CENT = 0.01
_PERCENTILES = (0.5, 0.9, 0.99)


def shard_report_lines(plan: ShardPlan, *, source: str, width: int) -> list[str]:
    """Return the report of `plan` for the data set at `source`, at most `width` columns wide where words allow."""
    lines = [
        f"{plan.shards:,} shards of about {decimal_size(plan.shard_bytes)}, {plan.samples_per_shard:,.0f} samples each",
        "",
        *rows(
            (
                ("data set", source),
                ("samples", f"{plan.data.samples:,} in {plan.data.files:,} files, {decimal_size(plan.data.bytes)}"),
                ("file sizes", _sizes(plan.data)),
                (
                    "readers",
                    _readers(plan),
                ),
            ),
            width=width,
        ),
        "",
        "Sizes of the files",
        *_distribution(plan.data),
        "",
        "Reading everything once from the store",
        f"  {'':<44}{'file by file':>16}{'from shards':>16}",
        *_comparison(plan),
        "",
        *wrapped(
            f"Packing into S3 asks {plan.packing.gets:,} GET and HEAD and {plan.packing.puts:,} PUT and LIST requests"
            f" once ({_usd(plan.packing.usd)}). Shards that a node's cache holds ask nothing again.",
            first="",
            width=width,
        ),
        "",
        "Why",
        *(line for reason in plan.reasons for line in wrapped(reason, first="- ", width=width)),
    ]
    if plan.warnings:
        lines += [
            "",
            "Mind",
            *(line for warning in plan.warnings for line in wrapped(warning, first="- ", width=width)),
        ]
    return lines


def _readers(plan: ShardPlan) -> str:
    who, each = plan.readers, plan.shards_per_reader
    return (
        f"{who.count:,} (nodes × accelerators × workers: {who.nodes:,} × {who.accelerators_per_node} × "
        f"{who.workers_per_accelerator}), {each} {'shard' if each == 1 else 'shards'} each"
    )


def _sizes(data: DataSummary) -> str:
    half, most, nearly_all = (decimal_size(data.size_at(share)) for share in _PERCENTILES)
    return (
        f"{decimal_size(data.smallest_bytes)} to {decimal_size(data.largest_bytes)}, mean"
        f" {decimal_size(data.mean_bytes)}; half up to {half}, 90% up to {most}, 99% up to {nearly_all}"
    )


def _distribution(data: DataSummary) -> Iterator[str]:
    most = max(size_class.files for size_class in data.distribution)
    for size_class in data.distribution:
        bar = "█" * max(1, round(_BAR_COLUMNS * size_class.files / most))
        yield f"  up to {decimal_size(size_class.up_to_bytes):>8}  {size_class.files:>13,}  {bar}"


def _comparison(plan: ShardPlan) -> Iterator[str]:
    before, after = plan.before, plan.after
    figures, limits = shard_figures(), s3_limits()
    rows = (
        ("GET and HEAD requests", f"{before.gets:,}", f"{after.gets:,}"),
        (f"their price in {plan.price_region}", _usd(before.usd), _usd(after.usd)),
        (
            f"least time at {limits.get_per_s_per_prefix:,} GET/s of a prefix",
            duration(before.seconds_at_request_limit),
            duration(after.seconds_at_request_limit),
        ),
        (
            f"a reader waits for first bytes ({figures.first_byte_ms:.0f} ms each)",
            duration(before.first_byte_seconds_per_reader),
            duration(after.first_byte_seconds_per_reader),
        ),
    )
    for words, one, other in rows:
        yield f"  {words:<44}{one:>16}{other:>16}"


def _usd(value: float | None) -> str:
    return "under $0.01" if value is not None and 0 < value < _CENT else usd(value)
