"""Running commands in this process: exit code, standard output, standard error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from clustersim.cli.main import guarded

SMALL = """\
name: small
model: llama3-8b
cluster: {nodes: 2, spare_nodes: 1, node: dgx-h100, storage: tectonic}
training: {seq_len: 4096, global_batch: 64, duration: 2 d, recompute: selective}
parallelism: {tp: 2, zero: 1}
checkpoint: {engine: async, interval: 10 min}
failures: [{name: gpu, component: gpu, mtbf: 200 h}, {name: crash, component: job, mtbf: 9 h, severity: process}]
repair: {time: 4 h}
simulation: {replicas: 4}
"""


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON document that it must be, without NaN."""

        def refuse(word: str) -> None:
            raise AssertionError(f"{word} in JSON")

        return json.loads(self.out, parse_constant=refuse)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        code = guarded(arguments)
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return run


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a small scenario in an empty current folder."""
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(SMALL)
    return "small.yaml"
