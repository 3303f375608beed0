"""The event log of a run: rows in order of time, as columns when asked for.

Saves of an undisturbed stretch are not written one by one: the stretch is kept and spelt out when the log is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clustersim.checkpoint.pattern import Luck
from clustersim.checkpoint.stretch import Stretch

if TYPE_CHECKING:
    import pandas as pd


class Entry(NamedTuple):
    """One thing that happened.

    ``event``: failure · ignored · noticed · stage · wait_for_nodes · load · resume · save_start · save_durable ·
    save_cut · failed · removed · in repair · repaired · placed · starting ·
    powered · off · outage · flap · end. ``seconds``: how long it took, where
    that is known; of ``save_start``, for how long training stood still for it.
    """

    time_s: float
    event: str
    subject: str = ""
    """The cause, the stage, the tier."""
    step: int | None = None
    node: int | None = None
    place: int | None = None
    seconds: float | None = None


class Log:
    """Collects entries; ``Log(False)`` drops them."""

    def __init__(self, active: bool = True) -> None:
        self.active = active
        self._rows: list[Entry] = []
        self._stretches: list[tuple[Stretch, float, int, Luck | None, bool]] = []

    def add(self, entry: Entry) -> int:
        """Keep one entry; returns its place."""
        if self.active:
            self._rows.append(entry)
        return len(self._rows) - 1

    def lasted(self, place: int, seconds: float) -> None:
        """The entry at a place took so many seconds."""
        if self.active:
            self._rows[place] = self._rows[place]._replace(seconds=seconds)

    def stretch(self, stretch: Stretch, end_s: float, leg: int, luck: Luck | None = None, stands: bool = False) -> None:
        """Keep a stretch that ended at ``end_s``, in ``leg``; ``stands``: the save at the end of that leg, for which training
        stands still, is written event by event."""
        if self.active:
            self._stretches.append((stretch, end_s, leg, luck, stands))

    def entries(self) -> list[Entry]:
        """All entries by time; those of one instant in the order in which they were written, saves first."""
        saves = [entry for kept in self._stretches for entry in saves_of(*kept)]
        return sorted(saves + self._rows, key=lambda entry: entry.time_s)

    def frame(self) -> pd.DataFrame:
        """The log as a DataFrame with the columns of ``Entry``."""
        import pandas as pd

        entries = self.entries()
        columns = {name: [entry[i] for entry in entries] for i, name in enumerate(Entry._fields)}
        frame = pd.DataFrame(columns)
        return frame.astype(
            {
                "time_s": "float64",
                "event": "string",
                "subject": "string",
                "step": "Int64",
                "node": "Int64",
                "place": "Int64",
                "seconds": "Float64",
            }
        )


def saves_of(stretch: Stretch, end_s: float, last: int, luck: Luck | None = None, stands: bool = False) -> list[Entry]:
    """Starts and durable moments of the saves of a stretch that ended in leg ``last``; see ``Log.stretch``."""
    entries: list[Entry] = []
    if not stretch.saves:
        return entries
    for leg in range(-int(stretch.flying), last + 1):
        step = stretch.step + stretch.steps_before(leg + 1)
        if leg >= 0 and stretch.stall_start(leg) <= end_s and not (stands and leg == last):
            start = stretch.stall_start(leg)
            seconds = min(stretch.leg_at(leg).stall_s, end_s - start)
            entries.append(Entry(start, "save_start", "", step, seconds=seconds))
        if luck is not None and luck.fails(stretch.serial + leg + 1):
            continue
        shape = stretch.outlay(leg)
        for _, tier in shape.durable:
            if leg < 0 and tier in shape.held:
                continue  # written when it happened, event by event
            durable = stretch.durable_s(leg, tier)
            if durable is not None and leg >= 0:
                durable = max(durable, stretch.stall_start(leg))  # less, of a save that takes no time: by rounding
            if durable is not None and durable <= end_s:
                entries.append(Entry(durable, "save_durable", tier.value, step))
    return entries
