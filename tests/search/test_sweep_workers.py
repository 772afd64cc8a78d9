"""Whoever plans the rows, they are the same rows in the same order."""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
import textwrap
from collections import deque
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import MissingExtra, WorkerError
from kvplan.search import ray_cluster
from kvplan.search.read_sweep import read_sweep
from kvplan.search.resume import Journal, header_of
from kvplan.search.sweep import run_sweep
from kvplan.search.workers import InProcess, ProcessPool, in_order, plan_span, spans_of
from tests.conftest import REPOSITORY

WIDTHS = REPOSITORY / "tests" / "data" / "sweeps" / "widths.yaml"
PRESETS = REPOSITORY / "tests" / "data" / "sweeps" / "presets.yaml"
HAS_RAY = importlib.util.find_spec("ray") is not None


def rows_by(workers, jobs: int, file=WIDTHS):
    sweep = read_sweep(file)
    with Journal.fresh(None, header_of(sweep, "1")) as journal:
        swept = run_sweep(sweep, workers, jobs, journal, lambda _: None)
        return list(swept.rows()), swept.tally.counts, swept.tally.front


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(1, 64))
def test_spans_cover_what_is_left_once(start: int, stop: int, jobs: int):
    spans = list(spans_of(start, stop, jobs))

    assert [index for span in spans for index in range(*span)] == list(range(start, stop))


@given(st.integers(0, 60), st.integers(1, 9))
def test_results_come_in_order_with_so_many_in_flight(count: int, ahead: int):
    flying: deque[int] = deque()
    most = 0

    def submit(span):
        nonlocal most
        flying.append(span[0])
        most = max(most, len(flying))
        return span[0]

    def wait(ticket: int) -> bytes:
        flying.remove(ticket)
        return str(ticket).encode()

    spans = [(start, start + 1) for start in range(count)]
    assert [int(each) for each in in_order(submit, wait, spans, ahead)] == list(range(count))
    assert most <= ahead


@pytest.mark.parametrize("file", [WIDTHS, PRESETS], ids=lambda path: path.stem)
def test_processes_plan_the_rows_that_this_one_plans(file):
    assert rows_by(ProcessPool(2), 2, file) == rows_by(InProcess(), 1, file)


def test_a_worker_that_dies_is_a_refusal_that_says_what_to_do():
    deadly: Any = Deadly()

    with pytest.raises(WorkerError, match="a worker process died") as refusal:
        list(ProcessPool(1).chunks(deadly, [(0, 1)]))

    assert "--jobs" in (refusal.value.hint or "")


class Deadly:
    """Ends the process that unpacks it."""

    def __reduce__(self):
        return os._exit, (9,)


RAY_RUN = """
    import subprocess
    import sys
    from pathlib import Path
    from kvplan.search.ray_cluster import import_ray

    spec, folder = sys.argv[1], Path(sys.argv[2])

    def sweep(name, *flags):
        argv = [sys.executable, "-P", "-m", "kvplan", "sweep", spec, "--quiet", *flags]
        subprocess.run([*argv, "--output", str(folder / f"{name}.csv")], check=True)

    sweep("here", "--jobs", "1")
    sweep("local", "--jobs", "2", "--ray")
    ray = import_ray()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    sweep("running", "--ray", ray.get_runtime_context().gcs_address)
    ray.shutdown()
"""


@pytest.mark.skipif(not HAS_RAY, reason="ray is not installed: pip install 'kvplan-pools[ray]'")
def test_ray_plans_the_same_rows_on_a_cluster_of_its_own_and_on_a_running_one(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(RAY_RUN), str(PRESETS), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert len(set(done.stdout.splitlines())) == 1
    here = (tmp_path / "here.csv").read_bytes()
    assert (tmp_path / "local.csv").read_bytes() == here
    assert (tmp_path / "running.csv").read_bytes() == here


@pytest.mark.skipif(not HAS_RAY, reason="ray is not installed: pip install 'kvplan-pools[ray]'")
@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "nowhere", "a:b", ":6379"])
def test_an_address_without_a_cluster_is_refused(address: str):
    with pytest.raises(WorkerError, match=f"no Ray cluster at '{address}'"):
        list(ray_cluster.RayCluster(address, 1).chunks(read_sweep(WIDTHS), []))


def test_a_node_with_another_kvplan_is_refused():
    packed = pickle.dumps(read_sweep(WIDTHS))
    own = version("kvplan-pools")

    assert ray_cluster.plan_span_of(packed, (0, 3), own) == plan_span(packed, (0, 3))
    with pytest.raises(WorkerError, match=f"has kvplan {own}, this machine 9.9"):
        ray_cluster.plan_span_of(packed, (0, 3), "9.9")


class TaskError(Exception):
    def __init__(self, cause: Exception | None) -> None:
        super().__init__("lost the cluster\nand more")
        self.cause = cause


@pytest.mark.parametrize(
    ("cause", "kind", "text"),
    [
        (None, WorkerError, "the cluster cannot plan: lost the cluster"),
        (ModuleNotFoundError("No module named 'kvplan'"), WorkerError, "No module named 'kvplan'"),
        (WorkerError("a node has kvplan 1"), WorkerError, "a node has kvplan 1"),
        (ZeroDivisionError("a bug"), ZeroDivisionError, "a bug"),
    ],
)
def test_what_went_wrong_on_a_cluster_is_told_apart(cause, kind, text):
    refusal = ray_cluster.refusal(TaskError(cause))

    assert type(refusal) is kind
    assert text in str(refusal)


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)

    with pytest.raises(MissingExtra) as refusal:
        list(ray_cluster.RayCluster("local", 1).chunks(read_sweep(WIDTHS), []))

    assert refusal.value.hint == "pip install 'kvplan-pools[ray]'"
