"""The scenario that people start from."""

from __future__ import annotations

from importlib import resources


def starter_text() -> str:
    """A commented scenario that validates and runs."""
    return resources.files("clustersim").joinpath("scenario", "starter.yaml").read_text(encoding="utf-8")
