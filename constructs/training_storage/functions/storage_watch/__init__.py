"""Watches the storage of one job and publishes what AWS has no metric for."""
