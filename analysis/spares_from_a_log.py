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
# # Sizing spares from your incident log
#
# A log of which node was down from when to when is enough to size spares, and better than "MTBF ÷ nodes": bad nodes fail
# again and again, and repairs have a long tail. Put your own file's name below (columns `node`, `start`, `end`; an empty
# end is a node that was still down when the log was closed). Here the log is made up, so that we know what it must show.

# %%
import csv
import tempfile
from pathlib import Path

import numpy as np

import clustersim
from clustersim.faults.fit.log import read_log
from clustersim.faults.fit.model import fit_failures
from clustersim.report import figures

NODES, DAYS = 64, 365
rng = np.random.default_rng(7)
lemons = rng.gamma(0.7, 1 / 0.7, NODES)  # some nodes fail far more often than others
rows = []
for node, factor in enumerate(lemons):
    at = 0.0
    while True:
        at += rng.exponential(60.0 / max(factor, 1e-3))  # days; one failure a node and 60 days in the mean
        down = rng.lognormal(np.log(1.0), 1.2)
        if at >= DAYS:
            break
        rows.append((f"node{node:02d}", at, at + down if at + down < DAYS else ""))
        at += down
file = Path(tempfile.mkdtemp()) / "incidents.csv"
with file.open("w", newline="") as out:
    csv.writer(out).writerows([("node", "start_d", "end_d"), *rows])
print(len(rows), "incidents on", len({row[0] for row in rows}), "of", NODES, "nodes")

# %% [markdown]
# ## The fit
#
# Censored repairs count, families are compared, lemons are found. (From the shell: `clustersim fit failures incidents.csv`.)

# %%
log = read_log(file, population=NODES, window_s=DAYS * 86400.0)
fitted = fit_failures(log, calendar=False)
print(fitted.yaml())

# %% [markdown]
# The fitted rate is that of the log, and the bad nodes are seen: a gamma frailty whose shape is well below that of equal nodes.

# %%
block = fitted.data()
fleet = block["failures"][0]
shape = (fleet.get("frailty") or {}).get("shape")
assert shape is not None and 0.3 < shape < 2.0
shape

# %% [markdown]
# ## The job on that fleet
#
# The job takes 64 such nodes; how many more must stand ready? First the naive answer: as if all nodes were alike and failed
# independently (Poisson with the log's mean number of nodes down).

# %%
job = clustersim.load("../scenarios/512-h100-70b.yaml").replace({
    "training.duration": "90 d",
    **{key: value for key, value in block.items()},
})
down_mean = sum((row[2] or DAYS) - row[1] for row in rows) / DAYS
naive = next(n for n in range(64) if np.cumsum([np.exp(-down_mean) * down_mean**k / np.prod(range(1, k + 1)) for k in range(n + 1)])[-1] > 0.99)
print(f"{down_mean:.1f} nodes down in the mean; Poisson says {naive} spares for 99 % of the time")

# %%
results = [clustersim.simulate(job.replace("cluster.spare_nodes", 12), replica=replica) for replica in range(4)]
figures.spares_coverage(results, spares=naive).figure

# %% [markdown]
# The naive number falls short of its 99 %: failures of lemons come in company, so the tail is longer than Poisson's.

# %%
down = {}
for result in results:
    for nodes, seconds in result.down_s.items():
        down[nodes] = down.get(nodes, 0.0) + seconds
whole = sum(down.values())
covered = sum(seconds for nodes, seconds in down.items() if nodes <= naive) / whole
assert covered < 0.99
print(f"{naive} spares suffice for {covered:.1%} of the time")

# %% [markdown]
# ## What a spare is worth
#
# Each further spare brings less. On the same failures more spares never hurt.

# %%
kept = {}
for spares in (0, 2, 4, 8):
    runs = [clustersim.simulate(job.replace("cluster.spare_nodes", spares), replica=replica) for replica in range(4)]
    kept[spares] = float(np.mean([run.ettr for run in runs]))
print({spares: f"{value:.2%}" for spares, value in kept.items()})
assert kept[0] < kept[2] <= kept[4] + 1e-3
assert kept[4] <= kept[8] + 1e-3
assert kept[8] - kept[4] < kept[2] - kept[0]
