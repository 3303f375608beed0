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
# # Choosing a checkpoint interval
#
# Save too often and saving costs; too seldom and each failure loses much. For synchronous saves that stall training for
# `d` and failures a mean time `M` apart, Young (1974) gave √(2dM), Daly (2006) a better form, and the exact optimum of
# exponential failures is known. How do they compare with a simulation, and how much does the choice matter?

# %%
import math

import clustersim
from clustersim import study
from clustersim.checkpoint import optimum
from clustersim.report import figures
from clustersim.study.ranges import Range
from clustersim.study.replicas import prepared_for

job = clustersim.load("../scenarios/512-h100-70b.yaml").replace({
    "cluster.spare_nodes": 60,  # so that nobody waits for a repair: closed forms know no spares
    "training.duration": "60 d",
    "checkpoint": {"engine": "sync", "interval": "30 min", "stall": "60 s"},
    "failures": [{"name": "all", "component": "job", "mtbf": "5 h", "severity": "process"}],
})
M, d = prepared_for(job).mtbf_s, prepared_for(job).save.stall_s
assert (M, d) == (18000.0, 60.0)

# %% [markdown]
# ## The curve

# %%
sweep = study.sweep(job, over={"checkpoint.interval": ["6 min", "12 min", "20 min", "30 min", "1 h", "2 h"]}, replicas=12)
figures.ettr_by_interval(sweep, job).figure

# %% [markdown]
# The simulated points lie on Daly's closed form: within two half-widths of their 95 % intervals.

# %%
back = figures.mean_restart_s(job)
for outcome, interval in zip(sweep.outcomes, (360, 720, 1200, 1800, 3600, 7200)):
    ettr = outcome.summaries()["ettr"]
    half = (ettr["ci95"][1] - ettr["ci95"][0]) / 2
    assert abs(ettr["mean"] - figures.sync_ettr(interval, d, M, back)) < 2 * half + 1e-3, interval

# %% [markdown]
# ## The optimum
#
# Three formulas, which agree to a few per cent here because `d` is much smaller than `M` …

# %%
formulas = {"Young": optimum.young(d, M), "Daly": optimum.daly(d, M), "exact": optimum.exact(d, M)}
assert math.isclose(formulas["Daly"], formulas["exact"], rel_tol=1e-3)
assert 0 < formulas["Young"] / formulas["exact"] - 1 < 0.05
formulas

# %% [markdown]
# … and a search, which needs no formula and holds for any failures and any engine. Its 95 % interval holds the exact optimum.

# %%
best = study.optimum(job, Range.parse("checkpoint.interval=5 min..2 h"), points=9, replicas=12)
assert best.ci95[0] <= formulas["exact"] <= best.ci95[1]
best.value, best.ci95, best.flat

# %% [markdown]
# ## How much it matters
#
# Near its top the curve is flat: twice or half the best interval costs less than two per cent of the time. Precision is
# wasted here; the order of magnitude is not.

# %%
top = figures.sync_ettr(formulas["exact"], d, M, back)
for factor in (0.5, 2.0):
    assert 0 < top - figures.sync_ettr(factor * formulas["exact"], d, M, back) < 0.02

# %% [markdown]
# ## Asynchronous saves
#
# A save that stalls training for a second and persists in the background moves the optimum to far shorter intervals.

# %%
quick = job.replace({"checkpoint": {"engine": "async", "interval": "auto", "stall": "1 s", "persist": "30 s"}})
every = prepared_for(quick).every.seconds
assert every < formulas["exact"] / 4
gain = study.compare([quick.replace("name", "async"), job.replace("name", "sync")], replicas=8)
assert gain.of("ettr")[0].verdict == "a"
gain
