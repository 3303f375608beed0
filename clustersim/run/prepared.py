"""What all replicas of a scenario share: step time, bytes, transfers, intervals, sources of failures. Built once."""

from __future__ import annotations

import bisect
import functools
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from clustersim.checkpoint.engine import Load, SaveSite, StepShape, Transfer
from clustersim.checkpoint.fluid import Shop
from clustersim.checkpoint.interval import Costs, Every, Interval
from clustersim.checkpoint.lanes import Lanes
from clustersim.checkpoint.pattern import Outlay, Pace, Pattern, outlay
from clustersim.checkpoint.placement import Placement
from clustersim.checkpoint.played import PlayedPattern
from clustersim.checkpoint.state import state_bytes
from clustersim.checkpoint.tiers import Tier
from clustersim.errors import InputError, Problem
from clustersim.faults.failure import FailureModel, FailuresDuring, Severity
from clustersim.faults.hazard.calendar import refuse_restless
from clustersim.faults.process import SPARE_BLOCK, Arrivals, Site
from clustersim.faults.spare_places import SparePlaces
from clustersim.hardware.topology import Placement as RankGrid
from clustersim.recovery.ground import KNOWN, Ground
from clustersim.recovery.strategy import RecoveryStrategy
from clustersim.rng import stream
from clustersim.run.luck import SaveLuck
from clustersim.run.pace import Paces, Step, check_overhead, slowed_place
from clustersim.run.room import check_room

SLOW_LEVELS = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
"""Factors of a slow place at which the step model is asked; between them the pace is a straight line."""

YEAR_S = 365 * 86400.0
MOST_HITS = 1e8
"""Most arrivals of one cause in a run. At some 40 µs each they take an hour: beyond it a unit has slipped."""
MOST_PATTERNS = 512
"""Patterns (some 10 KB each) that are remembered: slow nodes make new ones in every replica, memory must not grow with them."""
LONGEST_S = 10_000 * YEAR_S
"""Longest run, in wall time if nothing goes wrong: beyond it a digit has slipped in, and a run would hardly ever end."""


def distinct(causes: tuple[FailureModel, ...]) -> tuple[FailureModel, ...]:
    """The causes with names made distinct, since streams are told apart by name (``x``, ``x#2``, …)."""
    seen: dict[str, int] = {}
    named = []
    for cause in causes:
        seen[cause.name] = count = seen.get(cause.name, 0) + 1
        named.append(cause if count == 1 else cause.model_copy(update={"name": f"{cause.name}#{count}"}))
    return tuple(named)


@dataclass
class Prepared:
    """A scenario made ready to be run many times.

    Args:
        scenario: a validated scenario.
        step: see ``Paces``; None: the step model says.
        jump: cross undisturbed stretches by arithmetic; False: an event for every save (the same answer, for tests).
    """

    scenario: Any
    step: Step | None = None
    jump: bool = True
    paces: Paces = field(init=False)
    pace: Pace = field(init=False)
    mfu: float | None = field(init=False)
    target_steps: float = field(init=False)
    horizon_s: float = field(init=False)
    causes: tuple[FailureModel, ...] = field(init=False)
    during: FailuresDuring = field(init=False)
    shop: Shop = field(init=False)
    shared: bool = field(init=False)
    lanes: tuple[Lanes, ...] = field(init=False)
    transfers: tuple[Transfer, ...] = field(init=False)
    transfer_s: tuple[float, ...] = field(init=False)
    saves: tuple[Outlay, ...] = field(init=False)
    placement: Placement | None = field(init=False)
    loads: dict[Tier, Load] = field(init=False)
    save: Outlay | None = field(init=False)
    load: Load = field(init=False)
    mtbf_s: float = field(init=False)
    every: Every = field(init=False)
    ground: Ground = field(init=False)
    _slowed: dict[Any, Pace] = field(init=False, default_factory=dict)
    _thin: dict[tuple[int, frozenset[int], float], Pace | None] = field(init=False, default_factory=dict)
    _both: dict[tuple[Pace, Pace], Pace] = field(init=False, default_factory=dict)
    _between: dict[tuple[str, int, float], Pace] = field(init=False, default_factory=dict)
    _grid: RankGrid | None = field(init=False, default=None)
    _patterns: dict[tuple[Pace, Every], Pattern] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        scenario = self.scenario
        self.paces = Paces(scenario, self.step, scenario.checkpoint.slowdown)
        self.pace, self.mfu = self.paces.nominal, self.paces.mfu
        self.during = scenario.failures_during
        self.causes = distinct(scenario.failures)
        self.pace = self._with_checks(self.pace)
        self._end()
        self._count_hits()
        self._saves()
        self.ground = Ground.of(scenario, self.state, self.pace.nominal_s)

    def _end(self) -> None:
        training = self.scenario.training
        steps: float = training.steps or math.inf
        if training.tokens is not None:
            steps = math.ceil(training.tokens / training.tokens_per_step - 1e-9)
        self.target_steps = steps
        self.horizon_s = training.duration or math.inf
        if (length := min(self.horizon_s, self.nominal_s)) > LONGEST_S:
            key = next(key for key in ("duration", "steps", "tokens") if getattr(training, key) is not None)
            years = length / YEAR_S
            told = f"{years:,.0f}" if years < 1e9 else f"{years:.2g}"
            raise InputError(Problem(f"training.{key}", f"makes a run of {told} years; at most "
                                                        f"{LONGEST_S / YEAR_S:,.0f} are simulated"))  # fmt: skip

    def _count_hits(self) -> None:
        """Refuse failures that strike so often that no run would ever end: a unit has slipped."""
        length, site = min(self.horizon_s, self.nominal_s), self.job_site()
        for index, cause in enumerate(self.causes):
            for key in ("calendar", "repair_speed"):
                refuse_restless(getattr(cause, key, ()), self.horizon_s, f"failures.{index}.{key}")
            if (hits := length * cause.frequency(site)) > MOST_HITS:
                text = f"makes '{cause.name}' strike {hits:.2g} times in a run; at most {MOST_HITS:.0e} are simulated"
                raise InputError(Problem(f"failures.{index}{cause.rate_key}", text))

    def _saves(self) -> None:
        scenario = self.scenario
        cluster, engine = scenario.cluster, scenario.checkpoint
        layout, gpus = scenario.parallelism, cluster.gpus
        rates: dict[Severity, float] = {}
        for cause in self.causes:
            rates[cause.severity] = rates.get(cause.severity, 0.0) + cause.rate(self.job_site())
        rate = math.fsum(value for severity, value in rates.items() if severity != Severity.STORAGE)
        self.mtbf_s = 1 / rate if rate > 0 else math.inf
        state = state_bytes(scenario.model, scenario.training, layout, gpus)
        self.site = SaveSite(state, cluster, self._shape(), layout.tp * layout.pp, rates)
        self.state = state
        self.placement = engine.placement(self.site)
        self.loads = {tier: engine.load(self.site, tier) for tier in Tier}
        self.load = self.loads[Tier.SHARED]
        self.load_s = self.load.seconds
        if self.load.bytes:
            limit = self.load.per_client or math.inf
            self.load_s += cluster.storage.alone_s(self.load.bytes, "read", self.load.clients, limit)
        self._by_number(Shop.of(engine, self.site))
        self._share_network()
        cost = self.save or Outlay(0.0, ())
        self.every = (
            Every() if self.save is None else engine.interval.resolve(Costs(cost.stall_s, cost.busy_s, self.mtbf_s))
        )
        if self.every.seconds and engine.interval.about_s(self.pace.step_s) is None:
            self.site = replace(self.site, interval_s=self.every.seconds)
            self._by_number(Shop.of(engine, self.site))  # uploads no more often than one ends before the next begins
        self.pattern = self.pattern_at(self.pace)
        check_room(self)

    @functools.cached_property
    def learns(self) -> bool:
        """Whether the interval may change with failures."""
        return type(self.scenario.checkpoint.interval).again is not Interval.again

    def every_after(self, elapsed_s: float, failures: int) -> Every:
        """The interval after so many failures; the same for policies that do not learn."""
        cost = self.save or Outlay(0.0, ())
        costs = Costs(cost.stall_s, cost.busy_s, self.mtbf_s)
        return self.scenario.checkpoint.interval.again(costs, elapsed_s, failures) or self.every

    def _share_network(self) -> None:
        """Steps beside a save whose upload crosses training's own network are slower by what it takes of it."""
        share = self.scenario.checkpoint.network_share(self.site)
        if share > 0 and self.paces.flexible and self.shop.uploads_slow:
            from clustersim.pipeline.conditions import Conditions

            self.paces.saving = share
            beside = self.paces.under(Conditions()).saving_s
            self.pace = self.pace._replace(
                saving_s=max(self.pace.saving_s, beside + self.pace.step_s - self.pace.nominal_s)
            )

    def _shape(self) -> StepShape:
        """What engines may know of the step."""
        found = getattr(self.step, "shape", None)
        if isinstance(found, StepShape):
            return found
        parts = self.paces.breakdown_s
        network = sum(parts.get(name, 0.0) for name in ("pp", "dp", "cp", "ep"))
        return StepShape(self.pace.nominal_s, parts.get("optimizer", 0.0), network)

    def _by_number(self, shop: Shop) -> None:
        """Transfers, lanes and outlays by number of the save."""
        self.shop, self.shared = shop, shop.contends()
        self.transfers = tuple(move.transfer for move in shop.moves)
        self.transfer_s = tuple(move.alone_s for move in shop.moves)
        self.lanes = tuple(Lanes.of(moves) for moves in shop.saves)
        shapes = (outlay(tuple(m.transfer for m in moves), tuple(m.alone_s for m in moves)) for moves in shop.saves)
        self.saves = tuple(shapes) if self.transfers else ()
        self.save = self.saves[min(1, len(shop.saves) - 1)] if self.saves else None

    def lanes_of(self, number: int) -> Lanes:
        """What the save of a number consists of."""
        return self.lanes[number % len(self.lanes)]

    def luck(self, seed: int, replica: int) -> SaveLuck | None:
        """Which saves of a replica fail or are unreadable; None: none ever."""
        engine = self.scenario.checkpoint
        if engine.failing == 0 and engine.corrupt == 0:
            return None
        return SaveLuck(engine.failing, engine.corrupt, stream(seed, replica, "saves"))

    def slowed(self, nodes: dict[int, float], links: dict[int, float], everywhere: float) -> Pace:
        """The pace while places compute, or their links carry, by these factors slower: that of the slowest of them.

        That several pipeline stages are slow at once is not added up.
        """
        pace = self.pace
        found = [self._slow_pace("compute", place, factor) for place, factor in nodes.items()]
        found += [self._slow_pace("link", place, factor) for place, factor in links.items()]
        if everywhere > 1:
            found.append(self._slow_pace("cluster", 0, everywhere))
        for each in found:
            if each.step_s > pace.step_s:
                pace = each
        return pace

    def thinned(self, mode: RecoveryStrategy, away: frozenset[int], progress: float) -> Pace | None:
        """The pace without the places of ``away``, as ``mode`` makes do without them; None: the nominal one.

        ``progress``: what a step is worth, in steps of a job that lost nothing.

        Raises:
            AssertionError: ``mode`` cannot go on so.
        """
        key = (id(mode), away, progress)
        if key not in self._thin:
            conditions = self.ground.under(mode, away)
            if conditions is None:
                raise AssertionError(f"{mode.kind} goes on without places {sorted(away)}, which it cannot")
            if len(self._thin) >= KNOWN:
                self._thin.clear()
            overhead = self.scenario.recovery.overhead_s(self.ground)
            self._thin[key] = self.paces.thinned(conditions, overhead, progress)
        return self._thin[key]

    def together(self, slowed: Pace, thin: Pace | None) -> Pace:
        """The pace of a job with slow nodes and without some of its places: what each adds to the nominal step."""
        if thin is None:
            return slowed
        key = (slowed, thin)
        if key not in self._both:
            if len(self._both) >= KNOWN:
                self._both.clear()
            nominal = self.pace
            self._both[key] = thin._replace(step_s=thin.step_s + slowed.step_s - nominal.step_s,
                                            saving_s=thin.saving_s + slowed.saving_s - nominal.saving_s,
                                            straggle_s=slowed.straggle_s)  # fmt: skip
        return self._both[key]

    def _slow_pace(self, what: str, place: int, factor: float) -> Pace:
        """The pace with one slow place, between two levels at which the step model is asked.

        A step is a longest path, hence convex in the factor: between levels the line lies above it, by little.
        """
        if not self.paces.flexible:  # a fixed step is computation alone
            return self._stretched(factor if what == "compute" else 1.0)
        alike = self._alike(place)
        found = self._between.get((what, alike, factor))
        if found is None:
            found = self._between[what, alike, factor] = self._interpolated(what, alike, factor)
        return found

    def _interpolated(self, what: str, alike: int, factor: float) -> Pace:
        high = bisect.bisect_left(SLOW_LEVELS, factor)
        if high == len(SLOW_LEVELS):
            return self._level(what, alike, math.ceil(factor))
        if SLOW_LEVELS[high] == factor:
            return self._level(what, alike, factor)
        low = SLOW_LEVELS[high - 1]
        share = (factor - low) / (SLOW_LEVELS[high] - low)
        pair = zip(self._level(what, alike, low), self._level(what, alike, SLOW_LEVELS[high]), strict=True)
        return Pace(*(one + share * (other - one) for one, other in pair))

    def _level(self, what: str, place: int, factor: float) -> Pace:
        """The pace at a level; the step model is asked once."""
        key = (what, place, factor)
        if factor == 1.0:
            return self.pace
        if key not in self._slowed:
            there = slowed_place(what, place, factor, self.scenario.cluster.nodes)
            self._slowed[key] = self._with_checks(self.paces.under(there))
        return self._slowed[key]

    def _stretched(self, factor: float) -> Pace:
        seconds = self.pace.step_s * factor
        return self.pace._replace(step_s=seconds, saving_s=self.pace.saving_s * factor,
                                  straggle_s=self.pace.straggle_s + seconds - self.pace.step_s)  # fmt: skip

    def _with_checks(self, pace: Pace) -> Pace:
        """A pace with what checks for silent corruption cost."""
        extra = pace.nominal_s * check_overhead(self.causes)
        return pace if extra == 0 else pace._replace(step_s=pace.step_s + extra, saving_s=pace.saving_s + extra,
                                                     straggle_s=pace.straggle_s + extra)  # fmt: skip

    def _alike(self, place: int) -> int:
        """The place of the first data-parallel replica that has the work of ``place``: replicas are alike."""
        cluster, grid = self.scenario.cluster, self._grid
        if grid is None:
            layout = self.scenario.parallelism
            inner = layout.tp * layout.cp * layout.pp
            sizes = {"tp": layout.tp, "cp": layout.cp, "pp": layout.pp, "dp": max(1, cluster.gpus // inner)}
            grid = self._grid = RankGrid(sizes, tuple(name for name in layout.dimensions if name != "ep"))
        gpu = place * cluster.node.gpus
        return place if gpu >= grid.world else (
            gpu - gpu // grid.strides["dp"] % grid.sizes["dp"] * grid.strides["dp"]) // cluster.node.gpus  # fmt: skip

    def pattern_at(self, pace: Pace, every: Every | None = None) -> Pattern:
        """What repeats at a pace (and with another interval than the first)."""
        key = (pace, every or self.every)
        pattern = self._patterns.get(key)
        if pattern is None:
            engine, shop = self.scenario.checkpoint, self.shop
            if self._meet(*key):
                pattern = PlayedPattern(key[1], pace, self.saves, engine.when_busy, shop, self.lanes)
            else:
                pattern = Pattern(key[1], pace, self.saves, engine.when_busy, shop.depth)
            if len(self._patterns) >= MOST_PATTERNS:
                del self._patterns[next(iter(self._patterns))]  # the oldest
            self._patterns[key] = pattern
        return pattern

    def _meet(self, pace: Pace, every: Every) -> bool:
        """Whether moves of saves may share what they cross, or wait for each other, at a pace and an interval."""
        if every.never or not self.saves:
            return False
        least = every.steps * pace.step_s if every.steps else every.seconds or 0.0
        return self.shop.contends(least) or self.shop.waits(least + min(save.stall_s for save in self.saves))

    @property
    def nominal_s(self) -> float:
        """Wall time of the run if nothing went wrong and nothing was saved; inf where a duration ends it."""
        return self.target_steps * self.pace.step_s

    def job_site(self, seed: int = 0, replica: int = 0) -> Site:
        """The job's places, with the streams of one replica."""

        def streams(name: str, *ids: int) -> np.random.Generator:
            return stream(seed, replica, name, *ids)

        return Site(self.scenario.cluster, self.scenario.cluster.nodes, streams, self.scenario.repair.time,
                    horizon_s=self.horizon_s)  # fmt: skip

    def arrivals(self, seed: int, replica: int) -> list[Arrivals]:
        """All sources of failures of one replica: the job's places cause by cause, then blocks of spare places."""
        job, warm = self.job_site(seed, replica), self.scenario.cluster.spare_nodes
        spares = self.scenario.cluster.all_spare_nodes if self.during.spare else 0
        sites = [Site(job.cluster, SPARE_BLOCK, job.streams, job.repair, block, self.horizon_s)
                 for block in range(math.ceil(spares / SPARE_BLOCK))]  # fmt: skip
        found = [arrivals for cause in self.causes if (arrivals := cause.arrivals(job)) is not None]
        return found + [SparePlaces(arrivals, site, warm) for site in sites for cause in self.causes
                        if (arrivals := cause.arrivals(site)) is not None]  # fmt: skip
