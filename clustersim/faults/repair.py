"""The repair shop."""

from __future__ import annotations

from pydantic import Field

from clustersim.distributions import Constant, Distribution
from clustersim.part import Block


class Repair(Block):
    """How many nodes are repaired at once, and how long one takes. Nodes wait for a crew in order of arrival."""

    crews: int | None = Field(default=None, gt=0)
    """Repairs at once; null: unlimited."""
    time: Distribution = Constant(value=86400.0)
