"""The folders of the data lake, named once for plans and constructs."""

LAKE_FOLDERS = ("raw", "datasets", "finetune", "models", "checkpoints", "logs", "evaluations")
"""Top-level prefixes of the lake: raw and cleaned data, fine-tuning sets, weights, checkpoints worth keeping, logs,
evaluation results."""
