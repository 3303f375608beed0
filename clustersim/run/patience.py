"""When a run that is bounded by steps or tokens is given up, and what is said of one that gets nowhere."""

from __future__ import annotations

import math

from clustersim.run.prepared import Prepared

HOPELESS_INTERRUPTIONS = 1000
"""Interruptions in a row without a new durable save after which reaching the end counts as hopeless."""
HOPELESS_TIMES = 1000.0
"""Wall time ÷ nominal time of the run after which it does."""


class Patience:
    """Counts interruptions without a new durable save.

    Attributes:
        limit_s: wall time at which the run ends whatever it has reached.
        verdict: why the run was given up, or that it makes no progress; None: all is well.
        hopeless: the run is given up: its end will not be reached.
    """

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._bounded = prepared.horizon_s < math.inf
        self.limit_s = prepared.horizon_s if self._bounded else HOPELESS_TIMES * prepared.nominal_s
        self.verdict: str | None = None
        self.hopeless = False
        self._barren, self._furthest = 0, 0

    def interrupted(self, step: int, now_s: float, interruptions: int) -> None:
        """The job was interrupted for the so many-th time and goes back to ``step``."""
        if step > self._furthest:
            self._furthest, self._barren, self.verdict = step, 0, None
            return
        self._barren += 1
        if self._barren >= HOPELESS_INTERRUPTIONS and self.verdict is None:
            self._give_up(f"{self._barren} interruptions in a row without a new durable save", now_s, interruptions)

    def out_of_time(self, now_s: float, interruptions: int) -> None:
        """The run has reached ``limit_s``: the duration that was given, or the end of all patience."""
        if not self._bounded:
            nominal = self._prepared.nominal_s
            self._give_up(f"wall time passed {HOPELESS_TIMES:g} × the nominal {nominal:.4g} s", now_s, interruptions)

    def _give_up(self, reason: str, now_s: float, interruptions: int) -> None:
        """State that there is no progress; a run without a given duration ends with it."""
        prepared = self._prepared
        between = now_s / max(1, interruptions)
        save = prepared.save.stall_s + prepared.save.busy_s if prepared.save else math.inf
        first = prepared.pattern.first
        durable = "nothing is ever saved" if first is None else f"{first.train_s + save:.4g} s to the first durable save"
        back = prepared.scenario.recovery.graph.mean_s(prepared.load_s)
        self.verdict = (f"no progress: {reason}; {between:.4g} s between interruptions, {back:.4g} s to come back "
                        f"and {durable}")  # fmt: skip
        self.hopeless = not self._bounded
