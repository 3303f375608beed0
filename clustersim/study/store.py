"""The store of finished replicas: append-only shards that survive a crash at any moment.

A study's folder holds ``study.json`` (what is studied) and shards ``records-*.jsonl``: a line that names the columns,
then one line a finished replica, each behind a checksum. A record's key is the hash of (resolved scenario, seed, replica,
version): what is there already is never run again. Every writer has a shard of its own, so no lock is needed and any
shared file system will do. A line that a crash tore is ignored, counted and reported; the replica that it held runs again.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import socket
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from clustersim.errors import InputError, Problem

MANIFEST = "study.json"
PLAN = {"study": "plan"}
"""What the folder of a plan says: the records of any plan may stand in it, each under the scenario that it is of."""
_CHUNK = 1 << 20
"""Bytes of a shard that are read at a time."""


def canonical(data: Any) -> str:
    """JSON with sorted keys and no blanks: equal data gives equal text. NaN is refused (ValueError)."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def record_key(scenario_hash: str, seed: int, replica: int, version: str) -> str:
    """Key of one finished replica: 32 hexadecimal digits."""
    text = f"{scenario_hash}|{seed}|{replica}|{version}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def write_atomically(path: Path, text: str) -> None:
    """Write beside the target, flush to disk, rename: the file is whole or absent, never half-written.

    Raises:
        OSError: when the disk is full or the folder read-only; the target is untouched then.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}.part")
    try:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):  # told by the name that is known
            error.filename, error.filename2 = str(path), None
        raise


def _sealed(data: Any) -> str:
    body = canonical(data)
    return f"{zlib.crc32(body.encode()):08x} {body}\n"


def _opened(lines: Sequence[bytes]) -> list[Any]:
    """The data in lines of a shard, None for each that is torn or altered. They are read as one list: a call for each would
    cost as much again."""
    whole = [line[9:-1] if line[-1:] == b"\n" and line[:9] == b"%08x " % zlib.crc32(line[9:-1]) else b"null" for line in lines]
    found: list[Any] = json.loads(b"[" + b",".join(whole) + b"]")
    return found


class Row(Mapping[str, Any]):
    """The metrics of one replica: a mapping from name to value that shares its names with the rows beside it."""

    __slots__ = ("columns", "values_")

    def __init__(self, columns: dict[str, int], values: Sequence[Any]) -> None:
        self.columns, self.values_ = columns, values

    @classmethod
    def of(cls, metrics: Mapping[str, Any]) -> Row:
        """A row with names of its own."""
        return cls({name: place for place, name in enumerate(metrics)}, list(metrics.values()))

    def __getitem__(self, name: str) -> Any:
        return self.values_[self.columns[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)


class Record(NamedTuple):
    """One finished replica as the store keeps it."""

    key: str
    replica: int
    metrics: Row


@dataclass
class Contents:
    """What a store holds: ``records`` by key, the number of torn lines a shard, and keys that disagree."""

    records: dict[str, Record] = field(default_factory=dict)
    torn: dict[str, int] = field(default_factory=dict)
    conflicts: list[str] = field(default_factory=list)

    @property
    def torn_lines(self) -> int:
        """Lines that a crash left incomplete, over all shards."""
        return sum(self.torn.values())

    def add(self, record: Record) -> None:
        """Take a record in; one that is known already must be the same."""
        known = self.records.setdefault(record.key, record)
        if known is not record and known != record:
            self.conflicts.append(record.key)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Reading makes many small lists and no cycles: the cyclic collector would walk them again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Store:
    """A folder of finished replicas; use as a context manager when writing."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._file: Any = None
        self._columns: list[str] | None = None

    def open_study(self, manifest: dict[str, Any]) -> None:
        """Say what is studied here: create the folder, or check that it already holds the same study.

        A study of fewer replicas is extended: the finished ones count.

        Raises:
            InputError: the folder holds another study, or something that is no study.
            OSError: the folder cannot be made or written.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(Problem("", f"{self.folder} is a file; -o needs the name of a folder"))
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / MANIFEST
        # In the order of its keys, unlike records: a point may hold stages of recovery, which run as they are written.
        text = json.dumps(manifest, separators=(",", ":"), allow_nan=False, ensure_ascii=False) + "\n"
        if not path.exists():
            if (self.folder / "summary.json").exists():
                raise InputError(Problem("", f"{self.folder} holds the result of a run; name another folder"))
            if any(self.shards()):
                raise InputError(Problem("", f"{self.folder} holds records but no {MANIFEST}; name another folder"))
            write_atomically(path, text)
        found = self.manifest()
        if found != json.loads(text):
            changed = sorted(key for key in {*found, *manifest} if not _same(key, found.get(key), manifest.get(key)))
            fewer, count = found.get("replicas") or 0, manifest.get("replicas") or 0
            more = changed == ["replicas"] and isinstance(fewer, int) and count > fewer
            if more or not changed:
                write_atomically(path, text)  # the same study, to be gone on with
                return
            raise InputError(Problem("", f"{self.folder} holds another study (it differs in {', '.join(changed)}); "
                                         "name another folder, or give the same command to resume"))  # fmt: skip

    def manifest(self) -> dict[str, Any]:
        """What ``study.json`` says.

        Raises:
            InputError: there is none, or it is damaged.
        """
        path = self.folder / MANIFEST
        try:
            loaded = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(Problem("", f"{self.folder} is no study: it has no {MANIFEST}")) from None
        except NotADirectoryError:
            raise InputError(Problem("", f"{self.folder} is a file; name the folder of a study")) from None
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise InputError(Problem("", f"{path} cannot be read: {error}")) from None
        if not isinstance(loaded, dict):
            raise InputError(Problem("", f"{path} is no study: it holds no mapping"))
        return loaded

    def shards(self) -> list[Path]:
        """Paths of the shards, sorted by name."""
        return sorted(self.folder.glob("records-*.jsonl"))

    def load(self) -> Contents:
        """Every whole record. The order of shards and lines does not matter: records are looked up by key."""
        contents = Contents()
        with _no_collection():
            for shard in self.shards():
                _read(shard, contents)
        return contents

    def append(self, records: Iterable[tuple[str, int, Mapping[str, Any]]]) -> None:
        """Add finished replicas (key, replica, metrics) to this writer's own shard and hand them to the system at once."""
        lines = []
        for key, replica, metrics in records:
            columns = list(metrics)
            if columns != self._columns:
                self._columns = columns
                lines.append(_sealed({"columns": columns}))
            lines.append(_sealed([key, replica, list(metrics.values())]))
        if not lines:
            return
        if self._file is None:
            host = "".join(c if c.isalnum() else "-" for c in socket.gethostname())[:40]
            name = f"records-{host}-{os.getpid()}-{uuid.uuid4().hex[:8]}.jsonl"
            self._file = (self.folder / name).open("x", encoding="utf-8", newline="")
        self._file.write("".join(lines))
        self._file.flush()

    def close(self) -> None:
        """Flush this writer's shard to disk."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _same(key: str, old: Any, new: Any) -> bool:
    """Whether a study is the same in one thing. What an error says names the line of a file, which may move."""
    if key == "errors" and isinstance(old, list) and isinstance(new, list):
        return [error is None for error in old] == [error is None for error in new]
    return bool(old == new)


def _read(shard: Path, contents: Contents) -> None:
    """Add the whole records of a shard to ``contents``; lines after an unreadable list of columns cannot be read either."""
    columns: dict[str, int] | None = None
    torn = 0
    with shard.open("rb") as file:
        while lines := file.readlines(_CHUNK):
            for data in _opened(lines):
                if isinstance(data, dict):
                    columns = {name: place for place, name in enumerate(data["columns"])}
                elif data is None or columns is None or len(data[2]) != len(columns):
                    torn += 1
                else:
                    contents.add(Record(data[0], data[1], Row(columns, data[2])))
    if torn:
        contents.torn[shard.name] = torn
