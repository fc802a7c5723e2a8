"""Says before a deployment which data it would replace or remove."""

from training_storage.planning.guard.comparison import (
    NESTED_STACK,
    Comparison,
    Effect,
    Loss,
    Nested,
    NestedReader,
    compare,
    compare_templates,
)

__all__ = [
    "NESTED_STACK",
    "Comparison",
    "Effect",
    "Loss",
    "Nested",
    "NestedReader",
    "compare",
    "compare_templates",
]
