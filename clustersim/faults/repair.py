"""The repair shop: crews, repairs that fail, tests before a node goes back, and nodes that do not come back."""

from __future__ import annotations

from pydantic import Field

from clustersim.distributions import Constant, Distribution
from clustersim.part import Block
from clustersim.units import PositiveSeconds


class Quarantine(Block):
    """A burn-in test after each repair: how long it holds the node, and which share of repairs that do not hold it finds.

    A node that is caught is repaired once more; then the repair holds.
    """

    time: Distribution
    catch: float = Field(default=0.5, ge=0, le=1)


class Exclusion(Block):
    """Lemon nodes are taken out for good: ``faults`` within ``window``."""

    faults: int = Field(gt=1)
    window: PositiveSeconds = 28 * 86400.0


class Repair(Block):
    """How many nodes are repaired at once, and how long one takes. Nodes wait for a crew in order of arrival."""

    crews: int | None = Field(default=None, gt=0)
    """Repairs at once; null: unlimited."""
    time: Distribution = Constant(value=86400.0)
    failure: float = Field(default=0.0, ge=0, lt=1)
    """Chance that a repair turns out at its end to have failed: it starts again, with a new ``time``."""
    quarantine: Quarantine | None = None
    retire_after: int | None = Field(default=None, gt=0)
    """A node with so many faults is not repaired any more; null: every node is."""
    exclude: Exclusion | None = None
    replacement: Distribution | None = None
    """From a node's retirement to the arrival of a new one in its stead; null: none comes."""
