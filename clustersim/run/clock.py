"""The clock of a run: a SimPy environment, guarded delays, and the rule for things that happen at the same instant.

**Ties.** What ends at time t has ended before a failure at t strikes: a step, a save's transfer, a recovery stage and a
repair all come first, then failures, in the order in which the scenario lists their causes. Everything else that
happens at one instant happens in the order in which it was scheduled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import simpy
from simpy.events import Event, EventPriority

NORMAL = EventPriority(1)
LAST = EventPriority(2)
"""Priority of failures: after all else at the same instant."""


def delay(env: simpy.Environment, seconds: float, who: str) -> simpy.Timeout:
    """A time-out after ``seconds``; SimPy itself accepts NaN, which scrambles its heap.

    Raises:
        ValueError: ``seconds`` is NaN, infinite or negative; names ``who`` asked.
    """
    if not 0.0 <= seconds < math.inf:
        raise ValueError(f"{who} asked for a delay of {seconds} s")
    return env.timeout(seconds)


def at(env: simpy.Environment, time_s: float, call: Callable[[Event], None], who: str,
       priority: EventPriority = NORMAL, value: Any = None) -> Event:  # fmt: skip
    """Call ``call(event)`` at an absolute time (now, if that is past by rounding).

    Raises:
        ValueError: ``time_s`` is NaN, infinite or lies in the past; names ``who`` asked.
    """
    now: float = env.now
    wait = time_s - now
    if not 0.0 <= wait < math.inf:
        if not -1e-6 * max(1.0, now) <= wait < 0.0:
            raise ValueError(f"{who} asked for something at {time_s} s while it is {now} s")
        wait = 0.0
    event = Event(env)
    event._ok, event._value = True, value
    event.callbacks = [call]
    env.schedule(event, priority, wait)
    return event


def fire(event: Event) -> None:
    """Let an event happen within the one that is being processed: same instant, nothing can come between.

    Raises:
        RuntimeError: it has happened already.
    """
    callbacks = event.callbacks
    if callbacks is None:
        raise RuntimeError(f"{event} has already happened")
    event._ok, event._value = True, None
    event.callbacks = None  # type: ignore[assignment]
    for callback in callbacks:
        callback(event)


__all__ = ["LAST", "NORMAL", "at", "delay", "fire"]
