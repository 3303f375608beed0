"""What results look like in a notebook: tables with their numbers, every text escaped."""

from __future__ import annotations

import clustersim
from clustersim import study
from clustersim.scenario.load import load
from clustersim.shown import shown, with_interval
from tests.report.reports import SMALL


def test_texts_are_escaped_and_numbers_short() -> None:
    table = shown("<b>", [("<i>", 1234567.8, None, 0.5)], ("&",))
    assert table == ("<table><caption><b>&lt;b&gt;</b></caption><thead><tr><th>&amp;</th></tr></thead><tbody>"
                     "<tr><td>&lt;i&gt;</td><td>1,234,568</td><td>–</td><td>0.5</td></tr></tbody></table>")  # fmt: skip
    assert with_interval({"mean": 2.0, "ci95": [1.5, 2.5]}) == "2 ± 0.5"
    assert with_interval(None) == "–"


def test_scenarios_steps_runs_and_studies_show_themselves() -> None:
    job = load(SMALL | {"name": "<script>alert(1)</script>", "simulation": {"replicas": 2}})
    other = job.replace({"name": "other", "checkpoint.interval": "1 h"})
    things = [job, clustersim.step(job), clustersim.simulate(job), clustersim.run_replicas(job, replicas=2),
              study.compare([job, other]), study.sweep(job, over={"checkpoint.interval": ["5 min", "1 h"]})]  # fmt: skip
    for thing in things:
        html = thing._repr_html_()
        assert "<script>" not in html
        assert html.count("<") > 7
    assert "ettr" in things[2]._repr_html_()
    assert "is better than" in things[4]._repr_html_() or "do not decide" in things[4]._repr_html_()
