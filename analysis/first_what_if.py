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
# # A first what-if, in five minutes
#
# A 70B model on 512 H100 for two weeks. How much of the time is kept training, where does the rest go, and what would
# another choice have brought? Every claim in the text is asserted in the code, so it is true of the version that ran.

# %%
import clustersim
from clustersim import study
from clustersim.report import figures

job = clustersim.load("../scenarios/512-h100-70b.yaml")
job

# %% [markdown]
# ## One step
#
# Before anything fails: how long is a training step, what is its MFU, does it fit in memory?

# %%
step = clustersim.step(job)
assert step.memory["fits"]
assert 0.3 < step.mfu < 0.55
step

# %%
figures.memory_by_stage(step).figure

# %% [markdown]
# ## The run
#
# Failures, detection, spares, repair, checkpoints. Twelve replicas, each with its own bad luck.

# %%
table = clustersim.run_replicas(job, replicas=12, workers=1)
run = table.to_dict()
table

# %% [markdown]
# Over 95 % of the time is kept training. The ledger says where the rest went: every second lies in exactly one category.

# %%
ledger = {name: item["mean"] for name, item in run["ledger_s"].items()}
assert abs(sum(ledger.values()) - run["wall_s"]["mean"]) < 1e-6 * run["wall_s"]["mean"]
assert run["ettr"]["mean"] > 0.95
figures.waterfall(run["ledger_s"]).figure

# %% [markdown]
# ## What if …
#
# … there were no spare nodes? Both designs see the same failures, so the difference is known better than either.

# %%
bare = job.replace({"name": "no spares", "cluster.spare_nodes": 0})
without = study.compare([job, bare], replicas=12)
found = next(one for one in without.of("ettr"))
assert found.mean > 0, "spares never hurt on the same failures"
without

# %% [markdown]
# … failures were noticed at once instead of after a minute? That gains little here: detection is a small part of the ledger.

# %%
prompt = job.replace({"name": "noticed at once", **{f"failures.{i}.detection": 0.0 for i in range(len(job.failures))}})
share = ledger["detect"] / run["wall_s"]["mean"]
gain = study.compare([prompt, job], replicas=12).of("ettr")[0]
assert share < 0.005
assert abs(gain.mean) < 0.02
print(f"detection takes {share:.3%} of the time; noticing at once changes ETTR by {gain.mean:+.3%}")

# %% [markdown]
# Move the sliders yourself (each answer takes about a tenth of a second):

# %%
from clustersim.widgets import what_if

what_if(job)
