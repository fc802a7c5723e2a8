"""Says before a deployment which data it would replace or remove."""

from training_storage.planning.guard.comparison import (
    Comparison,
    Effect,
    Loss,
    Nested,
    NestedReader,
    compare,
    compare_templates,
)
from training_storage.planning.legality.template import NESTED_STACK

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
