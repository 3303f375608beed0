"""The clock of a run: a SimPy environment, guarded delays, and the rule for things that happen at the same instant.

**Ties.** What ends at time t has ended before a failure at t strikes: a step, a save's transfer, a recovery stage and a
repair all come first, then failures, in the order in which the scenario lists their causes. Everything else that
happens at one instant happens in the order in which it was scheduled.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

import simpy
from simpy.events import Event, EventPriority

NORMAL = EventPriority(1)
LAST = EventPriority(2)
"""Priority of failures: after all else at the same instant."""


class Clock(simpy.Environment):
    """SimPy's environment, with a loop that has nothing between one event and the next.

    Attributes:
        played: events processed so far: what a run costs, told without a watch.
    """

    played = 0

    def play(self, until: Event) -> None:
        """Process events until ``until`` has been processed.

        Raises:
            Exception: whatever a process raised.
        """
        queue = self._queue
        while until.callbacks is not None:
            self._now, _, _, event = heapq.heappop(queue)
            self.played += 1
            callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
            for callback in callbacks:
                callback(event)
            if not event._ok and not event.defused:
                raise event._value


class Moment(Event):
    """Something that will happen at a time that is settled already; ``callbacks`` are told."""

    def __init__(self, env: simpy.Environment, callbacks: list[Callable[[Event], None]]) -> None:
        self.env, self.callbacks, self._ok, self._value = env, callbacks, True, None


def delay(env: simpy.Environment, seconds: float, who: str) -> Event:
    """An event after ``seconds``; SimPy's own time-out accepts NaN, which scrambles its heap.

    Raises:
        ValueError: ``seconds`` is NaN, infinite or negative; names ``who`` asked.
    """
    if not 0.0 <= seconds < math.inf:
        raise ValueError(f"{who} asked for a delay of {seconds} s")
    event = Moment(env, [])
    heapq.heappush(env._queue, (env._now + seconds, NORMAL, next(env._eid), event))
    return event


def at(env: simpy.Environment, time_s: float, call: Callable[[Event], None], who: str,
       priority: EventPriority = NORMAL) -> Event:  # fmt: skip
    """Call ``call(event)`` at an absolute time (now, if that is past by rounding).

    Raises:
        ValueError: ``time_s`` is NaN, infinite or lies in the past; names ``who`` asked.
    """
    now: float = env._now
    wait = time_s - now
    if not 0.0 <= wait < math.inf:
        if not -1e-6 * max(1.0, now) <= wait < 0.0:
            raise ValueError(f"{who} asked for something at {time_s} s while it is {now} s")
        wait = 0.0
    event = Moment(env, [call])
    heapq.heappush(env._queue, (now + wait, priority, next(env._eid), event))
    return event


def interrupt(process: simpy.Process, cause: object) -> None:
    """Break a process off within the event that is being processed: same instant, nothing can come between.

    A process that is itself running interrupts others by SimPy's own, urgent event.
    """
    target = process.target
    if process.env.active_process is not None or target is None or target.callbacks is None:
        process.interrupt(cause)
        return
    thrown = Event(process.env)
    thrown._ok, thrown._value, thrown._defused = False, simpy.Interrupt(cause), True
    target.callbacks.remove(process._resume)
    process._resume(thrown)


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


__all__ = ["LAST", "NORMAL", "Clock", "at", "delay", "fire", "interrupt"]
