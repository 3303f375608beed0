"""fio's JSON output (``fio --output-format=json``): bytes and run time of each job, read and write."""

from __future__ import annotations

from typing import Any

from clustersim.calibrate.records import Measurements
from clustersim.errors import InputError, Problem


def looks_like(data: Any) -> bool:
    """Whether a JSON document is fio's."""
    return isinstance(data, dict) and "fio version" in data


def parse(data: dict[str, Any], name: str) -> Measurements:
    """Run times of all jobs.

    Raises:
        InputError: no jobs, a job that failed, or one without bytes or run time.
    """
    jobs = data.get("jobs")
    if not isinstance(jobs, list) or not jobs:
        raise InputError(Problem("jobs", "is missing or empty: this fio run has no result", name))
    common = data.get("global options", {})
    records, notes = [], []
    for index, job in enumerate(jobs):
        if job.get("error"):
            raise InputError(Problem(f"jobs[{index}].error", f"is {job['error']}: the job failed", name))
        options = {**common, **job.get("job options", {})}
        for op in ("read", "write"):
            part = job.get(op, {})
            if not part.get("io_bytes"):
                continue
            records.append(_record(op, part, options, f"jobs[{index}].{op}", name))
            if str(options.get("direct", "0")) != "1" and op == "read":
                notes.append(f"job {job.get('jobname', index)} read without direct=1: the page cache may have answered")
    if not records:
        raise InputError(Problem("jobs", "no job moved a byte (io_bytes of read and write are missing or 0)", name))
    return Measurements(name, "storage", {"versions": {"fio": str(data["fio version"])}}, records, notes)


def _record(op: str, part: dict[str, Any], options: dict[str, Any], path: str, name: str) -> dict[str, Any]:
    milliseconds = part.get("runtime")
    if not isinstance(milliseconds, (int, float)) or milliseconds <= 0:
        raise InputError(Problem(f"{path}.runtime", "is missing or 0: a run time in milliseconds is needed", name))
    direct = str(options.get("direct", "0")) == "1"
    key = {"op": f"storage-{op}", "block": str(options.get("bs", "4k")), "jobs": int(options.get("numjobs", 1)),
           "direct": direct, "bytes": part["io_bytes"]}  # fmt: skip
    return {"key": key, "median_s": milliseconds * 1e-3}
