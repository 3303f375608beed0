"""A folder with everything that a run gave. ``summary.json`` comes last: a folder without it holds no result."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from clustersim.errors import InputError, Problem
from clustersim.report.documents import provenance
from clustersim.report.events import ParquetLog
from clustersim.report.files import output_folder, remove_old, write_text
from clustersim.report.html import report_page
from clustersim.report.story import Story
from clustersim.report.summary import Answer

if TYPE_CHECKING:
    from clustersim.run.result import RunResult
    from clustersim.study.sensitivity import Gain

NAMES = ("summary.json", "report.html", "ledger.parquet", "events.parquet", "scenario.resolved.yaml")


class ResultFolder:
    """Collects a run's event logs as replicas finish, then writes all files, each whole or not at all.

    An earlier result in the folder is removed first, its ``summary.json`` before anything else.

    Raises:
        InputError: no folder can have this name, or it holds a study.
        OSError: it cannot be written to.
    """

    def __init__(self, name: str) -> None:
        self.folder = output_folder(name)
        if (self.folder / "study.json").exists():
            raise InputError(Problem("", "holds a study, whose report this would replace; name another folder").at(name))
        remove_old(self.folder, NAMES)
        self._temporary = {
            name: self.folder / f".{name}.{os.getpid()}.tmp" for name in ("events.parquet", "ledger.parquet")
        }
        self._log = ParquetLog(self._temporary["events.parquet"], self._temporary["ledger.parquet"])
        self._story = Story()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for path in self._temporary.values():
            path.unlink(missing_ok=True)

    def add(self, replica: int, result: RunResult) -> None:
        """Append one replica's events and ledger."""
        events = result.events
        self._story.add(result, events)
        self._log.add(replica, result, events)

    def finish(self, answer: Answer) -> Path:
        """Write everything; returns the folder."""
        self._log.close()
        write_text(self.folder / "scenario.resolved.yaml", answer.scenario.resolved())
        for name, path in self._temporary.items():
            if path.exists():
                _synced(path).replace(self.folder / name)
        write_text(self.folder / "report.html", report_page(answer, self._story, self._gains(answer)))
        document: dict[str, Any] = {**answer.document, "provenance": provenance(answer.scenario)}
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
        write_text(self.folder / "summary.json", f"{text}\n")
        return self.folder

    def _gains(self, answer: Answer) -> list[Gain] | str:
        """What single changes bring; nothing where the run was broken off or given up, a sentence where it would take long."""
        from clustersim.study.replicas import prepared_for
        from clustersim.study.sensitivity import sensitivities, too_long

        if answer.interrupted or answer.document["given_up"]:
            return []
        seed, prepared = answer.document["seed"], prepared_for(answer.scenario)
        return too_long(answer.scenario, prepared, seed) or sensitivities(
            answer.scenario, prepared, seed, self._story.goodput
        )


def _synced(path: Path) -> Path:
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return path
