"""Where the tasks of a study run: here, in processes, or on a Dask cluster.

An executor is one method: ``run(function, shared, tasks)`` yields ``(task, result)`` in any order as tasks finish. What
all tasks need (``shared``: the scenarios) is sent once a worker. A task that raises, or whose worker dies each time, gives
a ``Failure`` and the others go on: one bad point never costs the rest.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import signal
import sys
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Protocol

from clustersim.blame import plugin_error
from clustersim.errors import ClusterSimError, InputError, Problem

Task = Any
Function = Callable[[Any, Any], Any]
ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a task has no result: one line, and the traceback where it was no error of the user's."""

    message: str
    details: str = ""
    plugin: bool = False
    """A plug-in's fault."""
    error: ClusterSimError | None = None
    """The error itself, where it is one that a user can cause."""


class Executor(Protocol):
    """A place where tasks run."""

    workers: int

    def run(self, function: Function, shared: Any, tasks: Sequence[Task]) -> Iterator[tuple[Task, Any]]:
        """Yield ``(task, function(shared, task))``, or ``(task, Failure)``, as they finish."""
        ...


def guarded(function: Function, shared: Any, task: Task) -> Any:
    """The task's result, or a ``Failure`` that says what it raised. KeyboardInterrupt passes through."""
    try:
        return function(shared, task)
    except ClusterSimError as error:
        return Failure(str(error), error=error)
    except MemoryError:
        return Failure("out of memory")
    except Exception as error:  # whatever a plug-in raises must not end the study
        blamed = plugin_error(error)
        if blamed is not None:
            return Failure(str(blamed), blamed.details, plugin=True)
        return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())


@contextlib.contextmanager
def results_of(
    executor: Executor, function: Function, shared: Any, tasks: Sequence[Task]
) -> Iterator[Iterator[tuple[Task, Any]]]:
    """The executor's results; when the block is left, by an exception too, nothing of it goes on."""
    results = executor.run(function, shared, tasks)
    try:
        yield results
    finally:
        close = getattr(results, "close", None)
        if close is not None:
            close()


class Serial:
    """One task after the other, in this process."""

    workers = 1

    def run(self, function: Function, shared: Any, tasks: Sequence[Task]) -> Iterator[tuple[Task, Any]]:
        for task in tasks:
            yield task, guarded(function, shared, task)


_worker: tuple[Function, Any] | None = None  # what the initializer gave this worker process; set nowhere else


def _start_worker(payload: bytes) -> None:
    """Ctrl-C is the parent's affair: it stops handing out tasks, keeps what is finished, and ends its workers."""
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _worker = pickle.loads(payload)


def _in_worker(task: Task) -> Any:
    assert _worker is not None
    return guarded(*_worker, task)


class Processes:
    """Worker processes on this machine; a worker that dies (killed, out of memory) is replaced and its task tried again.

    Few tasks are in flight at a time, so a death casts suspicion on few; each suspect is then run alone, and the one that
    kills its worker ``ATTEMPTS`` times is given up.
    """

    def __init__(self, workers: int) -> None:
        self.workers = max(1, workers)

    @contextlib.contextmanager
    def _pool(self, payload: bytes, workers: int) -> Iterator[ProcessPoolExecutor]:
        """Workers that have ended when the block is left; by an exception, at once: what is under way is given up."""
        import multiprocessing

        method = "fork" if _fork_is_safe() else "spawn"
        context = multiprocessing.get_context(method)
        pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(payload,))
        try:
            yield pool
        except BaseException:  # Ctrl-C, a dead worker, or nobody asks for the rest
            for process in list((pool._processes or {}).values()):
                process.kill()
            # One that was writing leaves half a result; the pool's own thread waits for the rest of it until no writer is left.
            pool._result_queue._writer.close()  # type: ignore[attr-defined]
            raise
        finally:
            # Its own thread must have ended: Python's exit would wake it through a pipe that it may be closing just then.
            pool.shutdown(wait=True, cancel_futures=True)

    def run(self, function: Function, shared: Any, tasks: Sequence[Task]) -> Iterator[tuple[Task, Any]]:
        payload = pickle.dumps((function, shared))
        queue = list(reversed(tasks))
        while queue:
            suspects: list[Task] = []
            yield from self._until_broken(payload, queue, suspects)
            for task in suspects:
                yield task, self._alone(payload, task)

    def _until_broken(self, payload: bytes, queue: list[Task], suspects: list[Task]) -> Iterator[tuple[Task, Any]]:
        """Work through ``queue``; when a worker dies, leave the tasks that were in flight in ``suspects``."""
        flying: dict[Future[Any], Task] = {}
        try:
            with self._pool(payload, min(self.workers, len(queue))) as pool:
                while queue or flying:
                    while queue and len(flying) < 2 * self.workers:
                        flying[pool.submit(_in_worker, queue[-1])] = queue[-1]
                        queue.pop()
                    for future in wait(flying, return_when=FIRST_COMPLETED).done:
                        result = future.result()
                        yield flying.pop(future), result
        except BrokenProcessPool:
            suspects.extend(flying.values())

    def _alone(self, payload: bytes, task: Task) -> Any:
        for _ in range(ATTEMPTS):
            with contextlib.suppress(BrokenProcessPool), self._pool(payload, 1) as pool:
                return pool.submit(_in_worker, task).result()
        return Failure(f"its worker process died {ATTEMPTS} times")


def _fork_is_safe() -> bool:
    """Fork starts in milliseconds and shares loaded modules, but is unsafe beside threads and absent on Windows and macOS."""
    import threading

    return sys.platform == "linux" and threading.active_count() == 1 and "distributed" not in sys.modules


@functools.lru_cache(maxsize=4)
def _unpacked(payload: bytes) -> tuple[Function, Any]:
    loaded: tuple[Function, Any] = pickle.loads(payload)
    return loaded


def _on_dask(payload: bytes, task: Task) -> Any:
    return guarded(*_unpacked(payload), task)


class Dask:
    """Tasks on a Dask cluster: an existing one (``tcp://…``), or one started here for the time of the study.

    A worker that dies costs nothing: Dask runs its tasks elsewhere. It gives up on tasks that were on ``ATTEMPTS`` dying
    workers, the innocent beside the guilty; those run again one at a time, so only what kills its worker alone fails.
    """

    def __init__(self, address: str | None = None, workers: int | None = None, patience_s: float = 10.0) -> None:
        self.address, self.patience_s = address, patience_s
        self.workers = workers or os.cpu_count() or 1

    @contextlib.contextmanager
    def _client(self) -> Iterator[Any]:
        try:
            import dask
            import distributed as untyped
        except ImportError:
            raise InputError(Problem("--executor", "dask is not installed; pip install 'clustersim[dask]'")) from None
        distributed: Any = untyped
        settings = {"distributed.scheduler.allowed-failures": ATTEMPTS - 1, "distributed.worker.profile.enabled": False}
        with dask.config.set(settings):
            if self.address is None:
                # any free port: on Dask's usual one a second study at the same time would warn
                local = distributed.LocalCluster(
                    n_workers=self.workers, threads_per_worker=1, dashboard_address="127.0.0.1:0"
                )
                with local as cluster, distributed.Client(cluster) as client:
                    yield client
                return
            try:
                client = distributed.Client(self.address, timeout=self.patience_s)
            except (OSError, TimeoutError, ValueError) as error:
                raise InputError(
                    Problem("--address", f"no Dask scheduler answers at {self.address}: {error}")
                ) from None
            with client:
                self.workers = max(1, len(client.scheduler_info()["workers"]))
                yield client

    def run(self, function: Function, shared: Any, tasks: Sequence[Task]) -> Iterator[tuple[Task, Any]]:
        with self._client() as client:
            # a task rather than scattered data: Dask makes it anew when the workers that held it have died
            payload = client.submit(
                bytes, pickle.dumps((function, shared)), key=f"clustersim-shared-{uuid.uuid4().hex}"
            )
            suspects: list[Task] = []
            yield from self._flights(client, payload, tasks, 16 * self.workers, suspects)
            for task in suspects:
                yield from self._flights(client, payload, [task], 1, None)

    @staticmethod
    def _flights(client: Any, payload: Any, tasks: Sequence[Task], window: int,
                 suspects: list[Task] | None) -> Iterator[tuple[Task, Any]]:  # fmt: skip
        """Keep ``window`` tasks in flight; those whose workers died go to ``suspects``, or fail where that is None."""
        import distributed as untyped

        distributed: Any = untyped
        queue = list(reversed(tasks))
        stream: Any = distributed.as_completed(with_results=True, raise_errors=False)
        flying: dict[Any, Task] = {}
        while queue or flying:
            room = window - len(flying) if len(flying) <= window // 2 else 0
            fresh = [queue.pop() for _ in range(min(len(queue), room))]
            if fresh:  # many at once, and results with the news of their end: a question to the scheduler takes a millisecond
                keys = [f"clustersim-{uuid.uuid4().hex}" for _ in fresh]
                futures = client.map(_on_dask, [payload] * len(fresh), fresh, key=keys, pure=False)
                flying.update(zip(futures, fresh, strict=True))
                stream.update(futures)
            for future, result in stream.next_batch():
                task = flying.pop(future)
                if future.status == "finished":
                    yield task, result
                    continue
                error = result[1] if isinstance(result, tuple) else result
                if suspects is not None and isinstance(error, distributed.KilledWorker):
                    suspects.append(task)
                else:
                    yield task, Failure(f"{type(error).__name__}: {error}")


def executor(name: str = "auto", *, workers: int = 1, address: str | None = None) -> Executor:
    """The executor called ``name``: ``serial``, ``processes``, ``dask``, or ``auto`` (serial for one worker).

    Raises:
        InputError: an unknown name, or an address without Dask.
    """
    if address is not None and name != "dask":
        raise InputError(Problem("--address", "is the address of a Dask scheduler; give --executor dask with it"))
    if name == "dask":
        return Dask(address, workers if workers > 1 else None)
    if name == "serial" or (name == "auto" and workers <= 1):
        return Serial()
    if name in ("processes", "auto"):
        return Processes(workers)
    raise InputError(Problem("--executor", f"there is no executor '{name}'; known: serial, processes, dask"))
