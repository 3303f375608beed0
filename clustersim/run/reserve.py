"""Cold spares: nodes that are off, do not fail, and have to be powered up before they can take a place.

As many spares as the cluster has warm are kept powered, and one for every vacant place: whenever there are fewer, those that
are on their way counted, cold ones are powered up. A node that comes back and is one too many is switched off again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from clustersim.run.clock import at

if TYPE_CHECKING:
    from clustersim.run.cluster import Fleet


class Reserve:
    """The cold spares of a fleet.

    Args:
        fleet: to which they belong; their numbers follow those of its other nodes.
        count: how many there are at the start.
        power_up: draws the seconds from the switch to a node that can be placed.
    """

    def __init__(self, fleet: Fleet, count: int, power_up: Callable[[], float]) -> None:
        self._fleet, self._power_up = fleet, power_up
        self._warm = fleet.spares
        self._off = deque(fleet.add_cold(count))

    def call(self) -> None:
        """Power up as many nodes as are wanted, the one first that has been off for longest."""
        fleet = self._fleet
        wanted = self._warm + len(fleet.vacant) - fleet.spares - fleet.starting
        for _ in range(min(wanted, len(self._off))):
            node = self._off.popleft()
            fleet.start(node)
            at(fleet.env, fleet.env.now + self._power_up(), lambda _, node=node: fleet.powered(node), "power-up")  # type: ignore[misc]

    def takes(self, node: int) -> bool:
        """Whether a spare is one too many; if so, it has been switched off."""
        fleet = self._fleet
        if fleet.spares <= self._warm + len(fleet.vacant):
            return False
        fleet.switch_off(node)
        self._off.append(node)
        return True
