"""What the transfers of saves cross, and how they share it: max–min fair, bytes conserved.

All nodes are alike, so one resource of a kind stands for that of every node, and a rate is that of one node. A transfer that
crosses several resources goes at the pace of the tightest; what it leaves elsewhere is the others' (Bertsekas and Gallager,
Data Networks, section 6.5.2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from clustersim.checkpoint.engine import CheckpointEngine, SaveSite, Transfer
from clustersim.checkpoint.tiers import Tier
from clustersim.hardware.storage import Storage


class Demand(NamedTuple):
    """What a flow asks for.

    Attributes:
        limit: bytes/s a node at most.
        uses: of each resource that it crosses, how much of its capacity one byte/s a node takes.
    """

    limit: float
    uses: Mapping[str, float]


def max_min(demands: Sequence[Demand], capacity: Mapping[str, float]) -> list[float]:
    """Max–min fair rate of each flow, bytes/s a node: all rise together; who meets a limit or a full resource stays.

    Raises:
        ValueError: a flow has no limit and crosses nothing that has one.
    """
    rates = [0.0] * len(demands)
    left = dict(capacity)
    rising = list(range(len(demands)))
    level = 0.0
    while rising:
        weights: dict[str, float] = {}
        for flow in rising:
            for resource, weight in demands[flow].uses.items():
                weights[resource] = weights.get(resource, 0.0) + weight
        tops = {resource: level + left[resource] / weight for resource, weight in weights.items()}
        top = min(min(demands[flow].limit for flow in rising), min(tops.values(), default=math.inf))
        if top == math.inf:
            raise ValueError("a flow without a limit crosses no resource that has one")
        for resource, weight in weights.items():
            left[resource] = max(0.0, left[resource] - (top - level) * weight)
        full = {resource for resource, end in tops.items() if end <= top * (1 + 1e-12)}
        level, still = top, []
        for flow in rising:
            demand = demands[flow]
            if demand.limit <= top * (1 + 1e-12):
                rates[flow] = demand.limit
            elif full.isdisjoint(demand.uses):
                still.append(flow)
            else:
                rates[flow] = top
        rising = still
    return rates


class Move(NamedTuple):
    """A transfer as it is carried out.

    Attributes:
        fixed_s: before its bytes flow (after them, where it streams).
        flow_s: what its bytes take with all that they cross for themselves.
        size: bytes a node that takes part; 0: nothing is crossed, and ``flow_s`` is a fixed time.
        demand: what it asks for; None: of nothing that is shared.
    """

    transfer: Transfer
    fixed_s: float
    flow_s: float
    size: float = 0.0
    demand: Demand | None = None

    @property
    def alone_s(self) -> float:
        """Undisturbed seconds."""
        return self.fixed_s + self.flow_s


def storage_pools(storage: Storage, clients: int, direction: str) -> dict[str, float]:
    """What one byte/s a node takes of a storage system whose pools have a capacity of 1."""
    pool = "storage" if storage.duplex == "shared" else f"storage-{direction}"
    return {pool: clients / storage.bandwidth("read" if direction == "read" else "write")}


def _move(transfer: Transfer, site: SaveSite) -> Move:
    cluster = site.cluster
    clients = transfer.clients or cluster.nodes
    size = transfer.bytes / clients
    uses = dict.fromkeys(transfer.crosses, 1.0)
    if "host-memory" in uses and transfer.tier in (Tier.PEER, Tier.REPLICA):
        uses["host-memory"] = 2.0  # read where it is sent, written where it arrives
    if transfer.channel == "storage":
        storage = cluster.storage
        limit = min(transfer.per_client or math.inf, storage.per_node_bandwidth or math.inf)
        uses.pop("storage", None)
        uses.update(storage_pools(storage, clients, "write"))
        return Move(transfer, transfer.seconds, storage.alone_s(transfer.bytes, "write", clients, limit), size,
                    Demand(limit, uses))  # fmt: skip
    if size <= 0 or transfer.seconds <= 0 or not uses:
        return Move(transfer, 0.0, transfer.seconds)
    return Move(transfer, 0.0, transfer.seconds, size, Demand(size / transfer.seconds, uses))


def _within(move: Move, capacity: Mapping[str, float]) -> Move:
    """A move of which no resource is asked for more than it has, and none that has no end."""
    if move.demand is None:
        return move
    rate = move.size / move.flow_s if move.flow_s > 0 else 0.0
    uses = {name: min(use, capacity[name] / rate) if rate > 0 else use
            for name, use in move.demand.uses.items() if name in capacity}  # fmt: skip
    return move._replace(demand=Demand(move.demand.limit, uses))


@dataclass(frozen=True)
class Shop:
    """What saves consist of, and what they share.

    Attributes:
        saves: the moves of a save by its number modulo their count.
        capacity: bytes/s a node of each resource that has an end; of pools of storage 1.
        depth: saves that may be in flight at once.
        queued: background parts go out one by one.
        uploads_slow: uploads cross training's network, and slow steps beside them.
        chain_slows: all of a save but what is made beside it slows steps: by the engine's factor, or as it is the upload.
    """

    saves: tuple[tuple[Move, ...], ...]
    capacity: Mapping[str, float]
    depth: int = 1
    queued: bool = True
    uploads_slow: bool = False
    chain_slows: bool = True

    @classmethod
    def of(cls, engine: CheckpointEngine, site: SaveSite) -> Shop:
        """The shop of an engine on a cluster.

        What a transfer takes by itself it takes: one that is told to be faster than what it crosses fills it up.
        """
        capacity = {name: value for name, value in engine.capacities(site).items() if value < math.inf}
        capacity |= {"storage": 1.0, "storage-read": 1.0, "storage-write": 1.0}
        kept = [_within(_move(transfer, site), capacity) for transfer in engine.save(site)]
        count = max((move.transfer.every for move in kept), default=1)
        saves = tuple(tuple(move for move in kept if number % move.transfer.every == 0) for number in range(count))
        uploads = [move.transfer for move in kept if move.transfer.channel == "storage"]
        slow = engine.uplink == "training" and bool(uploads)
        chain = engine.slowdown > 1 or not all(upload.beside for upload in uploads)
        return cls(saves, capacity, engine.depth(site), engine.queued, slow, chain)

    @property
    def moves(self) -> tuple[Move, ...]:
        """All moves: those of the save in which all take part."""
        return self.saves[0]

    def waits(self, length_s: float = 0.0) -> bool:
        """Whether uploads beside training may wait for each other, or slow it.

        ``length_s``: from the start of one save's stall to the next, at least.
        """
        sides = [move for move in self.moves if move.transfer.beside]
        late = any(move.alone_s > length_s * move.transfer.every for move in sides)
        return bool(sides) and (late or self.uploads_slow)

    def contends(self, train_s: float = 0.0) -> bool:
        """Whether moves may be under way together that ask for more of a resource than it has.

        ``train_s``: training between two saves, at least.
        """
        blocking = [move for move in self.moves if move.transfer.blocking]
        behind = [move for move in self.moves if not move.transfer.blocking and not move.transfer.beside]
        sides = [move for move in self.moves if move.transfer.beside]
        overlap = self.depth > 1 and math.fsum(move.alone_s for move in behind) > train_s
        streams = any(move.transfer.streams for move in behind)
        if overlap and streams:
            return True
        groups = [behind] * (self.depth if overlap and not self.queued else 1) + [[side] for side in sides]
        groups += [blocking] if overlap or streams or any(side.alone_s > train_s for side in sides) else []
        return any(self._over(name, groups) for name in self.capacity)

    def _over(self, resource: str, groups: Sequence[Sequence[Move]]) -> bool:
        """Whether one move of each group, all at once, ask for more of a resource than there is."""
        asked = [max((asks(move, resource) for move in group), default=0.0) for group in groups]
        return sum(ask > 0 for ask in asked) > 1 and math.fsum(asked) > self.capacity[resource] * (1 + 1e-9)


def asks(move: Move, resource: str) -> float:
    """What a move takes of a resource while it has all for itself."""
    if move.demand is None or move.flow_s <= 0:
        return 0.0
    return move.size / move.flow_s * move.demand.uses.get(resource, 0.0)
