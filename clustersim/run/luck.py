"""What becomes of saves: fixed by their serial number, however a run is crossed."""

from __future__ import annotations

import numpy as np

_BLOCK = 256


class SaveLuck:
    """Two numbers a save, drawn in order of serial numbers from one stream.

    Args:
        failing, corrupt: probabilities.
        rng: the stream of saves of a replica.
    """

    def __init__(self, failing: float, corrupt: float, rng: np.random.Generator) -> None:
        self._failing, self._corrupt, self._rng = failing, corrupt, rng
        self._drawn: list[list[float]] = []

    def _of(self, serial: int) -> list[float]:
        while serial >= len(self._drawn):
            self._drawn += self._rng.random((_BLOCK, 2)).tolist()
        return self._drawn[serial]

    def fails(self, serial: int) -> bool:
        """The save never becomes durable."""
        return self._of(serial)[0] < self._failing

    def corrupt(self, serial: int) -> bool:
        """The copy turns out to be unreadable when it is loaded."""
        return self._of(serial)[1] < self._corrupt
