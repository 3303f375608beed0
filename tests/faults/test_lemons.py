"""Lemons that can be cured: how many, how often they fail, and that repairs end it."""

from __future__ import annotations

import math
import statistics

from clustersim.run.prepared import Prepared
from clustersim.run.simulate import run_replica
from tests.run.synthetic import DAY, build


def counts(share: float, cure: float, nodes: int = 400, days: float = 400.0, replicas: int = 12) -> list[int]:
    cause = {"kind": "lemons", "share": share, "mtbf": 20 * DAY, "cure": cure, "detection": 0.0}
    made = build(nodes=nodes, spares=40, failures=[cause], repair=60.0, duration=days * DAY, during={"spare": False})
    prepared = Prepared(made, 3600.0)
    return [run_replica(prepared, 1, replica, events=False).interruptions for replica in range(replicas)]


def test_each_lemon_fails_until_it_is_cured() -> None:
    # Binomial(400, 0.15) lemons in the job's places, each of which fails a geometric number of times, 1 ÷ cure in the mean; none works
    # for 400 d of a mean gap of 20 d without failing. Cured nodes leave their place to spares, 15 % of which are lemons as well.
    found = counts(0.15, 0.5)
    expected = 440 * 0.15 / 0.5
    error = statistics.stdev(found) / math.sqrt(len(found))
    assert abs(statistics.fmean(found) - expected) < 4 * error + 0.05 * expected


def test_without_lemons_nothing_fails_and_without_cures_it_goes_on() -> None:
    assert counts(0.0, 0.5, replicas=2) == [0, 0]
    # 60 lemons of 20 d, a minute in repair: their places hold spares meanwhile, so that the rate falls to that of a mixed fleet.
    endless = counts(0.15, 0.0, replicas=3, days=100.0)
    assert min(endless) > 1.5 * max(counts(0.15, 1.0, replicas=3, days=100.0))


def test_the_same_machines_are_lemons_whatever_the_strategy() -> None:
    cause = {"kind": "lemons", "share": 0.2, "mtbf": 5 * DAY, "detection": 0.0}
    first = []
    for kind in ("restart", "hot-spare"):
        made = build(nodes=20, spares=4, failures=[cause], repair=60.0, duration=60 * DAY, recovery={"kind": kind})
        entries = run_replica(Prepared(made, 3600.0), 0, 0).log.entries()
        first.append({entry.node for entry in entries if entry.event == "failed"})
    assert first[0] == first[1]
