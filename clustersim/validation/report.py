"""All suites together: the table, the summary, the JSON document."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from clustersim.errors import InputError, Problem, nearest
from clustersim.validation.results import SuiteResult
from clustersim.validation.rows import load_file
from clustersim.validation.suites import SUITES, Suite, suite_named, user_suite


@dataclass(frozen=True)
class Report:
    """Results of some suites."""

    suites: tuple[SuiteResult, ...]

    @property
    def over(self) -> list[str]:
        """Sentences on exceeded bounds."""
        return [sentence for suite in self.suites for sentence in suite.over]

    @property
    def nothing(self) -> list[str]:
        """Sentences on suites of which no row could be compared, with the reasons."""
        found = []
        for suite in self.suites:
            if not suite.scored:
                reasons = "; ".join(dict.fromkeys(result.skipped for result in suite.results if result.skipped))
                found.append(f"{suite.name}: no row could be compared: {reasons or 'there is none'}")
        return found

    def dump(self) -> dict[str, Any]:
        """The JSON document of ``validate``."""
        return {"suites": [suite.dump() for suite in self.suites]}

    def summary(self) -> list[str]:
        """Lines of a table, one a suite, at most 80 columns wide."""
        lines = [
            f"{'suite':<22}{'rows':>5}{'median':>8}{'mape':>7}{'bias':>7}{'p90':>7}{'rank':>6}{'bound':>7}  within"
        ]
        for suite in self.suites:
            bound = f"{suite.bound.median:g} %" if suite.bound.median is not None else "–"
            within = "–" if suite.bound == type(suite.bound)() else "no" if suite.over else "yes"
            lines.append(
                f"{_cut(suite.name, 21):<22}{len(suite.scored):>5}{_percent(suite.median_abs_error_pct):>8}"
                f"{_percent(suite.mape_pct):>7}{_signed(suite.bias_pct):>7}{_percent(suite.p90_pct):>7}"
                f"{_plain(suite.spearman):>6}{bound:>7}  {within}"
            )
        return lines

    def details(self, most: int | None = 3) -> list[str]:
        """Worst rows (or all, with ``most=None``) of each suite, and why rows were skipped."""
        lines: list[str] = []
        for suite in self.suites:
            rows = suite.worst if most is not None else suite.scored
            lines += textwrap.wrap(f"{suite.name}: {suite.about}", 80, subsequent_indent="  ")
            lines += [f"  {row.row_id:<26}{row.measured:>14.6g}{row.predicted:>14.6g}{row.error_pct:>+8.1f} %  {row.metric}"
                      for row in rows]  # fmt: skip
            if suite.choice is not None:
                lines += textwrap.wrap(suite.choice, 80, initial_indent="  ", subsequent_indent="    ")
            reasons: dict[str, int] = {}
            for result in suite.results:
                if result.skipped:
                    reasons[result.skipped] = reasons.get(result.skipped, 0) + 1
            for reason, count in sorted(reasons.items()):
                lines += textwrap.wrap(f"skipped {count}: {reason}", 80, initial_indent="  ", subsequent_indent="    ")
        return lines


def chosen_suites(names: Iterable[str]) -> list[Suite]:
    """Suites by name, and files as suites; none named: all.

    Raises:
        InputError: neither a suite nor a file that can be read.
    """
    wanted = list(names)
    if not wanted:
        return list(SUITES)
    problems, found = [], []
    for name in wanted:
        suite = suite_named(name)
        if suite is not None:
            found.append(suite)
        elif name.lower().endswith(".csv") or "/" in name:
            found.append(user_suite(name, load_file(name)))
        else:
            hint = nearest(name, [known.name for known in SUITES])
            problems.append(Problem("", f"there is no suite '{name}'{hint}; a file's name ends in .csv", name))
    if problems:
        raise InputError(problems)
    return found


def run(suites: Iterable[Suite], told: Any = None) -> Report:
    """Runs suites one after the other; ``told`` is called with (done, all) after each."""
    listed = list(suites)
    results = []
    for done, suite in enumerate(listed, start=1):
        results.append(suite.result())
        if told is not None:
            told(done, len(listed))
    return Report(tuple(results))


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else "…" + text[-(width - 1) :]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.1f}"


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
