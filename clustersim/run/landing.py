"""From the arithmetic of saves to their events and back: what is under way when a stretch is broken off, and where what
repeats may be joined again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from clustersim.checkpoint.lanes import Lanes
from clustersim.checkpoint.play import key_of
from clustersim.checkpoint.played import Held, PlayedPattern, PlayedStretch
from clustersim.checkpoint.stretch import Spot, Stretch
from clustersim.run.saver import Saver

if TYPE_CHECKING:
    from clustersim.run.training import Trainer


def under_way(stretch: Stretch, spot: Spot, now: float, lanes_of: Callable[[int], Lanes]) -> list[Held]:
    """The saves of a stretch that are under way at ``now``, where it stands at ``spot``, and how far they are."""
    if isinstance(stretch, PlayedStretch):
        return stretch.held(now)
    last = spot.leg if stretch.started(spot, now) > spot.leg else spot.leg - 1
    first = last
    while first >= (-1 if stretch.flying else 0) and stretch.in_flight(first, now):
        first -= 1
    older = stretch.side_in_flight(first, now)
    found = []
    for save in ([] if older is None else [older]) + list(range(first + 1, last + 1)):
        elapsed = now - (stretch.stall_end(save) - stretch.outlay(save).stall_s)
        late = stretch.leg_at(save).late_s if save >= 0 else 0.0
        found.append(Held(save, lanes_of(stretch.number + save + 1).undisturbed(elapsed, late)))
    return found


def joins(trainer: Trainer, savers: Sequence[Saver]) -> int | None:
    """The leg of what repeats that starts now where these saves, and nothing else, are under way; None: none does."""
    pattern, storage = trainer.pattern, trainer.storage
    if not isinstance(pattern, PlayedPattern) or trainer.pace != pattern.pace or trainer.alarmed or not storage.up:
        return None
    if storage.flows != sum(saver.flows for saver in savers):
        return None
    ages = [trainer.serial - saver.serial + 1 for saver in savers]
    key = tuple(key_of(age, saver.lanes, saver.places()) for age, saver in zip(ages, savers, strict=True))
    place = pattern.place_of(trainer.number, key, 2.0 + 1e-5 * trainer.env.now)  # rounding of the clock
    if place is None:
        return None
    cycle = pattern.cycle
    for age, saver in zip(ages, savers, strict=True):
        if saver.step != trainer.step - sum(cycle[(place - back) % len(cycle)].steps for back in range(1, age)):
            return None
    return place
