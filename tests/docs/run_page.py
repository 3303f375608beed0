"""Runs what a page shows, in order, in the current folder: `python run_page.py PAGE.md`.

* a ``yaml`` or ``python`` block that begins with ``# name.yaml`` or ``# name.py`` becomes that file;
* other ``python`` blocks are executed, in one namespace a page;
* ``$ clustersim …`` in ``console`` blocks and indented ``clustersim …`` lines are run and must end well.

So that a page takes seconds: ``--replicas`` is at most 2, a plan takes one layout, and blocks that need what is not here (a Slurm
cluster, measurements of real hardware) are left out.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

LEFT_OUT = ("SBATCH", "dask_jobqueue", "measurements/")
TAKES_REPLICAS = ("run", "compare", "sweep", "plan", "importance")


def pieces(text: str) -> list[tuple[str, str]]:
    """(language, body) of every block, and ("console", line) of every indented command, in order."""
    found = [(match.start(), match[1], match[2]) for match in re.finditer(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]
    bare = re.sub(r"^```.*?^```", lambda match: " " * len(match[0]), text, flags=re.MULTILINE | re.DOTALL)
    found += [(match.start(), "console", f"$ {match[1]}\n") for match in re.finditer(r"^    (clustersim [^#\n]*)", bare, re.MULTILINE)]
    return [(language, body) for _, language, body in sorted(found)]


def quick(words: list[str]) -> list[str]:
    """The same command with few replicas."""
    if words[0] not in TAKES_REPLICAS:
        return words
    if "--replicas" in words:
        words[words.index("--replicas") + 1] = "2"
    elif "--until" not in words:
        words += ["--replicas", "2"]
    if "--limit" in words:
        words[words.index("--limit") + 1] = "20"
    if words[0] == "plan":
        words = [word for number, word in enumerate(words) if "--layouts" not in (word, words[number - 1])] + ["--layouts", "1"]
    if words[0] == "importance":
        words += ["--draws", "4"]
    return words


def run(command: str) -> None:
    """One command in this process."""
    from clustersim.cli.main import guarded

    words = quick(shlex.split(command))
    code = guarded(words)
    if code != 0:
        raise SystemExit(f"ended with {code}: clustersim {shlex.join(words)}")


def show(page: Path) -> int:
    """Run a page; how many pieces ran."""
    ran, space = 0, {"__name__": "page"}
    sys.path.insert(0, ".")
    for language, body in pieces(page.read_text(encoding="utf-8")):
        named = re.match(r"# ([\w.-]+\.(?:yaml|py|csv))", body)
        if any(mark in body for mark in LEFT_OUT):
            continue
        if named:
            Path(named[1]).write_text(body, encoding="utf-8")
        if language == "python":
            execute(body, space)
            ran += 1
        for command in re.findall(r"^\$ clustersim ((?:.*\\\n)*.*)$", body, re.MULTILINE) if language == "console" else ():
            run(command.replace("\\\n", " "))
            ran += 1
    return ran


def execute(body: str, space: dict[str, Any]) -> None:
    """A Python block; its lines in a traceback."""
    exec(compile(body, "block", "exec"), space)


if __name__ == "__main__":
    print("ran", show(Path(sys.argv[1])), file=sys.stderr)
