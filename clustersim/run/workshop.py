"""What becomes of a node at the end of a repair: it goes back, is repaired once more, is tested, or retires."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from clustersim.faults.repair import Repair


class Verdict(NamedTuple):
    """``stays``: the shop keeps the node for ``again_s`` more; ``replacement_s``: after a node has retired a new one comes
    (None: never); ``cured``: a repair that would not have held does now."""

    stays: bool = False
    again_s: float = 0.0
    replacement_s: float | None = None
    cured: bool = False


BACK = Verdict()


class Workshop:
    """The rules of a repair shop, and its memory of each node's faults.

    Args:
        rules: the scenario's ``repair`` block.
        draws: gives the replica's stream of a name.
        will_fail: whether the repair of a node will not hold.
    """

    def __init__(
        self, rules: Repair, draws: Callable[[str], np.random.Generator], will_fail: Callable[[int], bool]
    ) -> None:
        self._rules, self._draws, self._will_fail = rules, draws, will_fail
        self._faults: dict[int, int] = {}
        self._recent: dict[int, deque[float]] = {}
        self._tested: set[int] = set()

    @property
    def plain(self) -> bool:
        """Whether every repaired node simply goes back."""
        rules = self._rules
        return rules.failure == 0 and rules.quarantine is None and rules.retire_after is None and rules.exclude is None

    def failed(self, node: int, now_s: float) -> bool:
        """A node has failed: remember it; True when it is not to be repaired any more."""
        rules = self._rules
        count = self._faults[node] = self._faults.get(node, 0) + 1
        if rules.retire_after is not None and count >= rules.retire_after:
            return True
        if rules.exclude is None:
            return False
        recent = self._recent.setdefault(node, deque())
        recent.append(now_s)
        while recent[0] < now_s - rules.exclude.window:
            recent.popleft()
        return len(recent) >= rules.exclude.faults

    def retire(self, node: int) -> Verdict:
        """A node leaves for good; what stands in for it has no past."""
        self._faults.pop(node, None)
        self._recent.pop(node, None)
        self._tested.discard(node)
        replacement = self._rules.replacement
        lead = None if replacement is None else replacement.sample(self._draws("replacement"))
        return Verdict(replacement_s=lead)

    def ended(self, node: int) -> Verdict:
        """A repair, or a test, has ended."""
        rules = self._rules
        if node in self._tested:
            self._tested.discard(node)
            assert rules.quarantine is not None
            if self._will_fail(node) and self._draws("quarantine").random() < rules.quarantine.catch:
                return Verdict(True, rules.time.sample(self._draws("repair/again")), cured=True)
            return BACK
        if rules.failure and self._draws("repair/failure").random() < rules.failure:
            return Verdict(True, rules.time.sample(self._draws("repair/again")))
        if rules.quarantine is not None and node not in self._tested:
            self._tested.add(node)
            return Verdict(True, rules.quarantine.time.sample(self._draws("quarantine")))
        return BACK
