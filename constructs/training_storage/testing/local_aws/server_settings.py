"""Environment variables that the local AWS hands to its server."""

METRICS_AHEAD = "LOCAL_AWS_METRICS_AHEAD"
"""Set: FSx reports the minute that has just begun as if it were over."""
