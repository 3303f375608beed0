"""Event logs and ledgers of many replicas as Parquet, written as they come."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustersim.run.result import RunResult


class ParquetLog:
    """Two Parquet files that grow by one replica at a time: memory holds one replica's events.

    Args:
        events: file of the events: ``replica`` and the columns of ``RunResult.events``.
        ledger: file of the ledgers: ``replica``, ``category``, ``seconds``, ``share``.
    """

    def __init__(self, events: Path, ledger: Path) -> None:
        self.paths = {"events": events, "ledger": ledger}
        self.writers: dict[str, Any] = {}

    def add(self, replica: int, result: RunResult, events: Any = None) -> None:
        """Append one replica; ``events``: its event log as a frame, if that was made already."""
        self._append("events", replica, result.events if events is None else events)
        self._append("ledger", replica, result.ledger)

    def _append(self, name: str, replica: int, frame: Any) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        frame.insert(0, "replica", replica)
        table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
        if name not in self.writers:
            self.writers[name] = pq.ParquetWriter(self.paths[name], table.schema, compression="zstd")
        self.writers[name].write_table(table)

    def close(self) -> None:
        """Finish both files."""
        for writer in self.writers.values():
            writer.close()
