#!/usr/bin/env python3
"""Synthesizes the platform: `cdk synth`, or `python3 app.py`."""

from __future__ import annotations

from aws_cdk import App

from folding.platform import FoldingPlatform


def build(app: App) -> FoldingPlatform:
    """Add production as the context in cdk.json describes it."""
    return FoldingPlatform(
        app,
        "Production",
        instances=int(app.node.get_context("instances")),
        region=app.node.get_context("region"),
    )


if __name__ == "__main__":
    app = App()
    build(app)
    app.synth()
