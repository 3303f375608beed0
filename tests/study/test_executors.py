"""Executors give the same results wherever tasks run, and one bad task never costs the rest."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from clustersim.errors import InputError
from clustersim.study.executors import ATTEMPTS, Dask, Executor, Failure, Processes, Serial, executor


def double(shared: dict[str, Any], task: int) -> int:
    return shared["factor"] * task


def fragile(shared: dict[str, Any], task: int) -> int:
    if task == 3:
        raise ValueError("three is not allowed")
    if task == 5 and shared.get("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def dies_once(shared: dict[str, Any], task: int) -> int:
    """Kills its worker the first time that any worker meets task 2 (a file remembers)."""
    if task == 2:
        try:
            os.close(os.open(shared["marker"], os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return task
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def long_answer(shared: dict[str, Any], task: int) -> bytes:
    """More than a pipe holds: its worker is writing most of the time."""
    return bytes(30_000_000)


@pytest.fixture(params=["serial", "processes"])
def place(request: pytest.FixtureRequest) -> Iterator[Executor]:
    return Serial() if request.param == "serial" else Processes(2)


def test_every_task_once(place: Executor) -> None:
    assert dict(place.run(double, {"factor": 2}, list(range(50)))) == {task: 2 * task for task in range(50)}
    assert dict(place.run(double, {"factor": 2}, [])) == {}


def test_a_task_that_raises_is_reported_and_the_rest_completes(place: Executor) -> None:
    results = dict(place.run(fragile, {}, list(range(6))))
    failed = results.pop(3)
    assert isinstance(failed, Failure)
    assert failed.message == "ValueError: three is not allowed"
    assert "fragile" in failed.details
    assert results == {task: task for task in (0, 1, 2, 4, 5)}


def test_a_killed_worker_is_replaced(tmp_path: Any) -> None:
    shared = {"marker": str(tmp_path / "died")}
    assert dict(Processes(2).run(dies_once, shared, list(range(20)))) == {task: task for task in range(20)}
    assert (tmp_path / "died").exists()


def test_a_task_that_always_kills_its_worker_is_given_up() -> None:
    results = dict(Processes(2).run(fragile, {"kill": True}, [0, 1, 2, 5, 6, 7, 8, 9]))
    assert results.pop(5) == Failure(f"its worker process died {ATTEMPTS} times")
    assert results == {task: task for task in (0, 1, 2, 6, 7, 8, 9)}


def test_nothing_is_left_of_a_study_that_is_not_gone_on_with() -> None:
    """A worker that is ended while it writes leaves half an answer, which nobody may wait for."""
    results = Processes(2).run(long_answer, {}, list(range(40)))
    before = threading.active_count()
    next(results)
    leaving = threading.Thread(target=results.close, daemon=True)  # type: ignore[attr-defined]
    leaving.start()
    leaving.join(30)
    assert not leaving.is_alive()
    assert (threading.active_count(), multiprocessing.active_children()) == (before, [])


def test_a_local_dask_cluster_does_not_mind_another() -> None:
    with socket.socket() as taken:  # by a dashboard of somebody else's; where one is running, it holds the port itself
        with contextlib.suppress(OSError):
            taken.bind(("0.0.0.0", 8787))
            taken.listen()
        assert dict(Dask(None, 1).run(fragile, {}, [0, 1])) == dict(Serial().run(fragile, {}, [0, 1]))


def test_dask_local_cluster() -> None:
    pytest.importorskip("distributed")
    results = dict(Dask(None, 2).run(fragile, {"kill": True}, list(range(8))))
    assert isinstance(results.pop(3), Failure)
    killed = results.pop(5)
    assert isinstance(killed, Failure)
    assert "KilledWorker" in killed.message
    assert results == {task: task for task in (0, 1, 2, 4, 6, 7)}


def test_names() -> None:
    assert isinstance(executor("auto", workers=1), Serial)
    assert isinstance(executor("auto", workers=2), Processes)
    assert isinstance(executor("serial", workers=8), Serial)
    with pytest.raises(InputError, match="no executor 'ray'"):
        executor("ray")
    with pytest.raises(InputError, match="address of a Dask scheduler"):
        executor("processes", address="tcp://localhost:1")


def test_no_scheduler_at_the_address() -> None:
    pytest.importorskip("distributed")
    place = Dask("tcp://127.0.0.1:9", 1, patience_s=0.5)
    with pytest.raises(InputError, match="no Dask scheduler answers"):
        list(place.run(double, {"factor": 1}, [1]))
