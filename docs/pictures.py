"""Draws the pictures of the documentation anew: `python docs/pictures.py` (the page's picture needs Chromium).

Not a test: pictures change with every better model; look at them before they are committed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
sys.path.insert(0, str(ROOT))


def main() -> None:
    """All pictures."""
    import clustersim
    from clustersim import study
    from clustersim.pipeline.step import StepModel
    from clustersim.report import figures
    from clustersim.report.step_view import step_view

    IMAGES.mkdir(exist_ok=True)

    def save(axes: Any, name: str) -> None:
        axes.figure.savefig(IMAGES / f"{name}.png", dpi=110, metadata={"Software": None})

    job = clustersim.load(ROOT / "scenarios" / "512-h100-70b.yaml")
    plain = {"parallelism.chunks": None}
    shown = {kind: StepModel.of(job.replace({"parallelism.schedule": kind, **plain})) for kind in ("1f1b", "zb-v")}
    views = [step_view(model, title=kind) for kind, model in shown.items()]
    save(figures.gantt_axes(views), "schedules")
    sync = job.replace(
        {
            "cluster.spare_nodes": 60,
            "training.duration": "30 d",
            "checkpoint": {"engine": "sync", "interval": 1800.0, "stall": 60.0},
            "failures": [{"name": "all", "component": "job", "mtbf": 5 * 3600.0, "severity": "process"}],
        }
    )
    over = {"checkpoint.interval": ["5 min", "10 min", "20 min", "30 min", "1 h", "2 h"]}
    save(figures.ettr_by_interval(study.sweep(sync, over=over, replicas=12), sync), "interval")
    page()


def page() -> None:
    """The first screen and the course of the main scenario's report."""
    from tests.report.browser import browser

    with tempfile.TemporaryDirectory() as folder, browser() as opened:
        main_job = ROOT / "scenarios" / "llama3-405b-16k.yaml"
        command = [sys.executable, "-m", "clustersim", "run", str(main_job), "-o", folder, "-q"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        opened.open(Path(folder) / "report.html", width=1240, height=860)
        opened.screenshot(IMAGES / "report.png")
        opened.call("Emulation.setDeviceMetricsOverride", width=1240, height=390, deviceScaleFactor=1, mobile=False)
        opened.run("document.getElementById('course').scrollIntoView()")
        opened.run("document.getElementById('course-next').click()")
        opened.run("new Promise((done) => setTimeout(done, 200))")
        opened.screenshot(IMAGES / "course.png")


if __name__ == "__main__":
    main()
