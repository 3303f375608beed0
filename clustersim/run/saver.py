"""One save, event by event: its transfers over the resources that they share with others.

The chain (blocking transfers, then background ones) runs one after the other; what is ``beside`` starts when training
goes on, each by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import simpy

from clustersim.checkpoint.engine import Transfer
from clustersim.checkpoint.tiers import Tier
from clustersim.run.clock import at
from clustersim.run.storage import Flow, SharedStorage

Timed = tuple[Transfer, float]
"""A transfer and what it takes with the resources for itself."""


@dataclass
class Start:
    """How far a save is, and what it waits for.

    Attributes:
        elapsed_s: seconds since its stall began.
        late_s: from the end of the stall until its background part could start.
        after: what its background part waits for; None: nothing.
        behind: what the transfers beside it wait for, by tier.
    """

    elapsed_s: float = 0.0
    late_s: float = 0.0
    after: simpy.Event | None = None
    behind: dict[Tier, simpy.Event] = field(default_factory=dict)


class Saver:
    """A save under way. ``unblocked`` succeeds when training may go on, ``ended`` when the chain is done.

    Args:
        parts: what the save consists of.
        clients: nodes that write.
        step: steps in the state that is saved.
        durable: called with each tier on which the copy has become durable.
        start: how far it is, and what it waits for.

    Attributes:
        sides: of what is made beside, an event a tier for its end.
    """

    def __init__(
        self,
        env: simpy.Environment,
        storage: SharedStorage,
        parts: Sequence[Timed],
        clients: int,
        step: int,
        durable: Callable[[Tier], None],
        start: Start | None = None,
    ) -> None:
        self._env, self._storage, self._clients, self._durable = env, storage, clients, durable
        start = start or Start()
        chain = [part for part in parts if not part[0].beside]
        self._aside = [part for part in parts if part[0].beside]
        self.step = step
        self.unblocked, self.ended = simpy.Event(env), simpy.Event(env)
        self.sides = {part[0].tier: simpy.Event(env) for part in self._aside if part[0].tier is not None}
        self._flows: list[Flow] = []
        self._cut = False
        self._start = start
        self._chain = chain
        self._stall_s = sum(seconds for transfer, seconds in chain if transfer.blocking)
        self._at = 0
        elapsed = start.elapsed_s
        if elapsed > self._stall_s:
            elapsed = max(self._stall_s, elapsed - start.late_s)
        while self._at < len(chain) and elapsed > 0 and elapsed >= chain[self._at][1]:
            elapsed -= chain[self._at][1]
            self._at += 1
        self._go(elapsed)

    @property
    def stalling(self) -> bool:
        """Whether training stands still for this save."""
        return self._at < len(self._chain) and self._chain[self._at][0].blocking

    @property
    def flow(self) -> Flow | None:
        """The flow on shared storage that is under way."""
        return self._flows[-1] if self._flows else None

    @property
    def open_sides(self) -> dict[Tier, simpy.Event]:
        """What is still being made beside, by tier."""
        return {tier: event for tier, event in self.sides.items() if not event.triggered}

    @property
    def over(self) -> bool:
        """Nothing is left to do."""
        return self.ended.triggered and not self.open_sides

    def cut(self) -> None:
        """Stop the save; nothing that is not yet durable will be."""
        self._cut = True
        for flow in self._flows:
            self._storage.cancel(flow)
        self._flows.clear()

    def _go(self, elapsed_s: float = 0.0) -> None:
        """Start the next transfer, ``elapsed_s`` of which have been done before."""
        if not self.stalling and not self.unblocked.triggered:
            self.unblocked.succeed()
            beyond = max(0.0, self._start.elapsed_s - self._stall_s)
            for transfer, seconds in self._aside:
                if beyond >= seconds > 0 and transfer.tier is not None:  # made before, undisturbed
                    self.sides[transfer.tier].succeed()
                    continue
                self._wait(self._start.behind.get(transfer.tier) if transfer.tier else None,
                           lambda part=(transfer, seconds): self._run(part, self._side_done, beyond))  # type: ignore[misc]  # fmt: skip
            after, self._start.after = self._start.after, None
            if after is not None and not after.processed and self._at < len(self._chain):
                self._wait(after, self._go)
                return
        if self._at == len(self._chain):
            self.ended.succeed()
            return
        self._run(self._chain[self._at], self._next, elapsed_s)

    def _wait(self, event: simpy.Event | None, then: Callable[[], None]) -> None:
        """Go on when an event has come, unless the save has been cut off."""
        if event is None or event.processed or event.callbacks is None:
            then()
            return
        event.callbacks.append(lambda _: None if self._cut else then())

    def _run(self, part: Timed, then: Callable[[Timed], None], elapsed_s: float) -> None:
        """Run one transfer, ``elapsed_s`` of which have been done before."""
        transfer, seconds = part
        left = transfer.seconds - elapsed_s
        if transfer.channel == "local":
            at(self._env, self._env.now + left, lambda _: then(part), "save")
        elif left > 0:
            at(self._env, self._env.now + left, lambda _: self._flow_on(part, transfer.bytes, then), "save")
        else:
            alone = seconds - transfer.seconds
            self._flow_on(part, transfer.bytes * (1 + left / alone) if alone > 0 else 0.0, then)

    def _flow_on(self, part: Timed, size: float, then: Callable[[Timed], None]) -> None:
        if self._cut:
            return
        transfer = part[0]
        flow: Flow | None = None

        def done() -> None:
            if flow is not None:
                self._flows.remove(flow)
            then(part)

        flow = self._storage.start(size, "write", transfer.clients or self._clients, done, transfer.per_client)
        self._flows.append(flow)

    def _next(self, part: Timed) -> None:
        if self._cut:
            return
        self._at += 1
        if part[0].tier is not None:
            self._durable(part[0].tier)
        self._go()

    def _side_done(self, part: Timed) -> None:
        tier = part[0].tier
        if self._cut or tier is None or self.sides[tier].triggered:
            return
        self._durable(tier)
        self.sides[tier].succeed()
