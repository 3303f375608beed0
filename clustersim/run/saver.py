"""One save, event by event: its transfers one after the other, over the resources that they share with others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import simpy

from clustersim.checkpoint.engine import Transfer
from clustersim.checkpoint.tiers import Tier
from clustersim.run.clock import at
from clustersim.run.storage import Flow, SharedStorage


class Saver:
    """A save under way. ``unblocked`` succeeds when training may go on, ``ended`` when nothing is left to do.

    Args:
        transfers: what the save consists of.
        seconds: what each transfer takes with the resources for itself.
        clients: nodes that write.
        step: steps in the state that is saved.
        durable: called with each tier on which the copy has become durable.
        elapsed_s: how much of the save has been done before, undisturbed.
    """

    def __init__(
        self,
        env: simpy.Environment,
        storage: SharedStorage,
        transfers: Sequence[Transfer],
        seconds: Sequence[float],
        clients: int,
        step: int,
        durable: Callable[[Tier], None],
        elapsed_s: float = 0.0,
    ) -> None:
        self._env, self._storage, self._transfers, self._seconds = env, storage, transfers, seconds
        self._clients, self._durable = clients, durable
        self.step = step
        self.unblocked, self.ended = simpy.Event(env), simpy.Event(env)
        self._flow: Flow | None = None
        self._cut = False
        self._at = 0
        while self._at < len(transfers) and elapsed_s > 0 and elapsed_s >= seconds[self._at]:
            elapsed_s -= seconds[self._at]
            self._at += 1
        self._go(elapsed_s)

    @property
    def stalling(self) -> bool:
        """Whether training stands still for this save."""
        return self._at < len(self._transfers) and self._transfers[self._at].blocking

    @property
    def flow(self) -> Flow | None:
        """The flow on shared storage that is under way."""
        return self._flow

    def cut(self) -> None:
        """Stop the save; nothing that is not yet durable will be."""
        self._cut = True
        if self._flow is not None:
            self._storage.cancel(self._flow)
            self._flow = None

    def _go(self, elapsed_s: float = 0.0) -> None:
        """Start the next transfer, ``elapsed_s`` of which have been done before."""
        if not self.stalling and not self.unblocked.triggered:
            self.unblocked.succeed()
        if self._at == len(self._transfers):
            self.ended.succeed()
            return
        transfer = self._transfers[self._at]
        left = transfer.seconds - elapsed_s
        if transfer.channel == "local":
            at(self._env, self._env.now + left, lambda _: self._next(), "save")
        elif left > 0:
            at(self._env, self._env.now + left, lambda _: self._flow_on(transfer.bytes), "save")
        else:
            alone = self._seconds[self._at] - transfer.seconds
            self._flow_on(transfer.bytes * (1 + left / alone) if alone > 0 else 0.0)

    def _flow_on(self, size: float) -> None:
        if not self._cut:
            self._flow = self._storage.start(size, "write", self._clients, self._next)

    def _next(self) -> None:
        if self._cut:
            return
        self._flow = None
        tier = self._transfers[self._at].tier
        self._at += 1
        if tier is not None:
            self._durable(tier)
        self._go()
