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
# # Comparing pipeline schedules
#
# The same model, GPUs and microbatches; only the order of the operations differs. Which is fastest, what does it cost in
# memory, and does the ranking survive failures?

# %%
import clustersim
from clustersim import study
from clustersim.errors import ClusterSimError
from clustersim.pipeline.step import StepModel
from clustersim.report import figures
from clustersim.report.step_view import step_view

job = clustersim.load("../scenarios/512-h100-70b.yaml")

# %%
designs = {}
for kind in ("gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-v"):
    chunks = {} if kind == "interleaved-1f1b" else {"parallelism.chunks": None}
    try:
        designs[kind] = job.replace({"name": kind, "parallelism.schedule": kind, **chunks})
    except ClusterSimError as error:
        print(kind, error)
steps = {kind: clustersim.step(design) for kind, design in designs.items()}
for kind, step in steps.items():
    print(f"{kind:18} {step.step_time_s:6.3f} s  MFU {step.mfu:.1%}  bubble {step.bubble_fraction:5.1%}  "
          f"peak {step.memory['peak_bytes'] / 2**30:5.1f} GiB  {'fits' if step.memory['fits'] else 'does not fit'}")

# %% [markdown]
# GPipe and 1F1B have the same bubble, but GPipe holds every microbatch: it does not fit. Interleaving shrinks the bubble.

# %%
assert abs(steps["gpipe"].bubble_fraction - steps["1f1b"].bubble_fraction) < 0.02
assert steps["gpipe"].memory["peak_bytes"] > 2 * steps["1f1b"].memory["peak_bytes"]
assert not steps["gpipe"].memory["fits"]
assert steps["interleaved-1f1b"].bubble_fraction < steps["1f1b"].bubble_fraction

# %% [markdown]
# ## As the papers draw it
#
# Ranks as rows, time to the right, the same axis for both; below each rank the bytes that it holds, the dashed line its GPU's memory.

# %%
figures.gantt_axes([step_view(StepModel.of(designs[kind]), title=kind) for kind in ("1f1b", "zb-h1")]).figure

# %% [markdown]
# ## Under failures
#
# A faster step helps a run by the same factor as long as the rest of the ledger stays what it was.

# %%
which = study.compare([designs["interleaved-1f1b"], designs["1f1b"]], replicas=8)
goodput = which.of("goodput_tokens_per_s")[0]
faster = steps["1f1b"].step_time_s / steps["interleaved-1f1b"].step_time_s - 1
assert goodput.verdict == "a"
assert abs(goodput.relative - faster) < 0.01
which
