# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Calibrating and checking
#
# How far can a prediction be trusted? Three checks, from parts to whole: single layers against published
# tables, whole steps against published runs, and your own runs as one more table. No GPU is needed for any of them.

# %%
import statistics

from clustersim.report import figures
from clustersim.validation.suites import suite_named

# %% [markdown]
# ## Parts: one layer
#
# vTrain published the times of single transformer layers on A100 by hidden size, tensor parallelism and microbatch. Small
# layers are the hardest: launches and kernel choices weigh most there.

# %%
parts = suite_named("vtrain-per-layer").result()
pairs = [(one.measured, one.predicted) for one in parts.scored]
assert parts.median_abs_error_pct < 12
figures.predicted_against_measured(pairs, "s").figure

# %% [markdown]
# ## Whole steps: GPT from 3.6 to 310 billion parameters on up to 1,024 A100
#
# The rows of *Efficient Large-Scale Language Model Training on GPU Clusters* (2021). Nothing is tuned by row: the same presets and the
# same software stack predict all of them.

# %%
whole = suite_named("megatron-sc21").result()
for one in whole.scored:
    print(f"{one.row_id:24} measured {one.measured:8.3f}  predicted {one.predicted:8.3f}  {one.error_pct:+5.1f} %")
assert whole.median_abs_error_pct < 8

# %%
figures.predicted_against_measured([(one.measured, one.predicted) for one in whole.scored], "s").figure

# %% [markdown]
# ## Memory
#
# States and activations of the first stage, to a fraction of a per cent: memory is arithmetic, unlike time.

# %%
memory = suite_named("korthikanti-memory").result()
assert memory.median_abs_error_pct < 1
memory.median_abs_error_pct

# %% [markdown]
# ## Not everything fits that well
#
# Some public rows are predicted badly; most of them do not say what ran. The error of a suite, not of its best row, is what a
# prediction carries.

# %%
errors = sorted(abs(one.error_pct) for one in [*parts.scored, *whole.scored])
print(f"median {statistics.median(errors):.1f} %, nine in ten within {errors[int(0.9 * len(errors))]:.1f} %")
assert errors[-1] > 2 * statistics.median(errors), "the worst row is far from the median"

# %% [markdown]
# ## Your own
#
# `clustersim validate my-runs.csv` treats a table of your runs as a suite. `clustersim fit profile measurements.jsonl -o
# my-gpu.yaml` turns measurements (from the scripts in `calibration/`, nccl-tests, fio, traces) into a profile that scenarios
# name under `calibration:`; both say how well they fit and where they extrapolate.
