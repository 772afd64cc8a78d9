"""Broken files in large numbers: read, or refused with a place; never a traceback, never a hang."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest

from kvplan.errors import InputError, KvplanError
from kvplan.replay.workloads.events import open_events
from kvplan.replay.workloads.formats import FORMATS
from kvplan.replay.workloads.options import ReadOptions
from kvplan.replay.workloads.rows import BadRow
from kvplan.replay.workloads.workload import open_workload
from tests.replay.workloads.mutations import mutated

MAX_S = 5.0


def read_broken(path: Path, random: Random) -> bool:
    """Write one broken file and read it every way; whether it was taken as a workload."""
    path.write_bytes(mutated(random))
    given = random.random() < 0.15
    options = ReadOptions(
        skip_bad_rows=random.random() < 0.6,
        request_rate=random.choice([3.0, float("inf")]) if given else None,
        output_len=7 if given and random.random() < 0.5 else None,
        block_size=random.choice([None, 16, 7]) if given else None,
    )
    format = random.choice([None] * 19 + [random.choice(list(FORMATS))])
    taken = False
    try:
        workload = open_workload(path, format=format, options=options)
        times = [request.t_ns for request in workload]
        taken = True
        assert workload.tally.reconciles
        assert times == sorted(times)
        assert len(times) == len(workload)
    except KvplanError as error:
        refused_well(error, path)
    try:
        list(open_events(path))
    except KvplanError as error:
        refused_well(error, path)
    return taken


def refused_well(error: KvplanError, path: Path) -> None:
    assert not isinstance(error, BadRow)
    assert (error.where or "").startswith(str(path)), error
    assert str(error).encode()
    assert len(str(error)) < 1000 or isinstance(error, InputError)


def run(path: Path, seed: str, count: int) -> int:
    num_taken = 0
    for number in range(count):
        start = time.process_time()
        num_taken += read_broken(path, Random(f"{seed}:{number}"))
        assert time.process_time() - start < MAX_S, f"{seed}:{number} takes too long"
    return num_taken


def test_broken_files_are_read_or_refused(tmp_path):
    num_taken = run(tmp_path / "w", "ci", 3_000)

    assert 300 < num_taken < 2_700


@pytest.mark.nightly
def test_many_more_broken_files_are_read_or_refused(tmp_path):
    run(tmp_path / "w", "nightly", 100_000)
