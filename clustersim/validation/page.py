"""The page of measured errors, ``docs/validation.md``: written by the command, so that it cannot go stale by hand."""

from __future__ import annotations

from clustersim.validation.defaults import sources
from clustersim.validation.report import Report
from clustersim.validation.results import SuiteResult

HEAD = """# Predictions against published measurements

Written by `clustersim validate -o DIR`; do not edit. Errors are predicted ÷ measured − 1 in %: a negative bias means
that the prediction is too fast (or too small). One set of constants a GPU type and one preset a software stack; none is
chosen for a suite or a row. *rank* is the rank correlation (Spearman) inside sweeps of one model on one machine.

`clustersim validate` runs all suites, `clustersim validate NAME` one, `clustersim validate FILE.csv` your own runs: a
table with the columns `gpu, n_gpus, model_name` (a preset's name) or `n_layers, hidden, n_heads, …`, `seq_len, tp, pp,
micro_batch, global_batch, precision` and one of `step_time_s, tokens_per_s_per_gpu, tflops_per_gpu, mfu_pct`; further
columns are `n_kv_heads, ffn_hidden, vocab, n_experts, top_k, cp, ep, vp, dp, zero_stage, activation_recompute,
sequence_parallel, schedule, inter_node_net_gbps, gpus_per_node, memory_gb`. A blank cell takes a default; `--assumed`
lists them row by row. Where only a rate is printed, the step time follows from the FLOP as the source counts them. A
cell that cannot be read skips its row and says where. The command ends with 1 where a suite is over its bound, or where
no row of a table can be compared.
"""

FOOT = """
## Not modelled

Memory pressure (allocator retries near the limit), contention of sharded-parameter traffic with computation, several
pipelines a node that share NICs unevenly, drift between releases of one stack. Rows of TPUs, Gaudi and Trainium are skipped
(no preset), hybrids of attention and state-space layers too.
"""


def page(report: Report) -> str:
    """The page as Markdown."""
    lines = [HEAD, "| suite | rows | skipped | median | mean | bias | p90 | rank | bound | worst three |",
             "| --- | --: | --: | --: | --: | --: | --: | --: | --: | --- |"]  # fmt: skip
    lines += [_line(suite) for suite in report.suites]
    lines += ["", "Suites:", "", *map(_about, report.suites), "", *_defaults()]
    return "\n".join(lines) + FOOT


def _line(suite: SuiteResult) -> str:
    worst = ", ".join(f"{row.row_id} {row.error_pct:+.0f}" for row in suite.worst)
    bound = "–" if suite.bound.median is None else f"{suite.bound.median:g}"
    if suite.bound.mape is not None:
        bound += f" (mean {suite.bound.mape:g})"
    numbers = [_text(value) for value in (suite.median_abs_error_pct, suite.mape_pct, suite.bias_pct, suite.p90_pct)]
    rank = "–" if suite.spearman is None else f"{suite.spearman:.2f}"
    skipped = len(suite.results) - len(suite.scored)
    return f"| {suite.name} | {len(suite.scored)} | {skipped} | {' | '.join(numbers)} | {rank} | {bound} | {worst} |"


def _about(suite: SuiteResult) -> str:
    return f"* `{suite.name}`: {suite.about}" + (f"; {suite.choice}" if suite.choice is not None else "")


def _defaults() -> list[str]:
    lines = [
        "## Defaults for blank cells, by source",
        "",
        "| source | stack | values | reasons |",
        "| --- | --- | --- | --- |",
    ]
    for entry in sources():
        values = ", ".join(f"{key} {value}" for key, value in entry.values.items()) or (entry.skip or "")
        reasons = "; ".join(f"{key}: {text}" for key, text in entry.why.items())
        stack = (
            entry.stack
            if isinstance(entry.stack, str)
            else ", ".join(f"{k} {v}" for k, v in (entry.stack or {}).items())
        )
        lines.append(f"| {entry.name} | {stack or 'of the GPU'} | {values} | {reasons} |")
    return lines


def _text(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
