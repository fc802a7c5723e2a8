"""Says before a deployment which data it would replace or remove."""

from training_storage.planning.guard.comparison import Effect, Loss, compare_templates

__all__ = ["Effect", "Loss", "compare_templates"]
