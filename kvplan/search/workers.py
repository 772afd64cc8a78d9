"""Who plans the rows: this process, a pool of processes, or a Ray cluster, in the order of the grid."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache
from typing import Protocol, TypeVar

from kvplan.errors import WorkerError
from kvplan.search.resume import Chunk, encode_chunk
from kvplan.search.rows import Planner
from kvplan.search.sweep_plan import SweepPlan

Span = tuple[int, int]  # combinations from the first to before the second
Chunks = Generator[bytes, None, None]
Ticket = TypeVar("Ticket")

AHEAD = 4  # chunks in flight for each worker
SERIAL_COMBINATIONS = 5_000  # below, starting processes takes longer than planning
CHUNK_COMBINATIONS = 500


class Workers(Protocol):
    """Plans spans of a sweep and yields their encoded chunks, in order."""

    def chunks(self, sweep: SweepPlan, spans: Iterable[Span]) -> Chunks: ...


class InProcess:
    """One span after another, here."""

    def chunks(self, sweep: SweepPlan, spans: Iterable[Span]) -> Chunks:
        packed = pickle.dumps(sweep)
        for span in spans:
            yield plan_span(packed, span)


class ProcessPool:
    """Processes of this machine. WorkerError where one dies."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def chunks(self, sweep: SweepPlan, spans: Iterable[Span]) -> Chunks:
        packed = pickle.dumps(sweep)
        context = multiprocessing.get_context("spawn")  # no lock of this process comes along
        pool = ProcessPoolExecutor(self.jobs, context, initializer=end_with_parent)

        def submit(span: Span) -> Callable[[], bytes]:
            with interrupts_held():  # a process inherits it: an interrupt is the parent's business
                return pool.submit(plan_span, packed, span).result

        try:
            yield from in_order(submit, lambda result: result(), spans, AHEAD * self.jobs)
        except BrokenProcessPool:
            raise WorkerError(
                "a worker process died, perhaps for want of memory",
                hint="use fewer with --jobs; --resume continues a result with --output",
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def in_order(
    submit: Callable[[Span], Ticket],
    wait: Callable[[Ticket], bytes],
    spans: Iterable[Span],
    ahead: int,
) -> Chunks:
    """Results in the order of the spans, with so many of them in flight."""
    tickets: deque[Ticket] = deque()
    for span in spans:
        tickets.append(submit(span))
        if len(tickets) >= ahead:
            yield wait(tickets.popleft())
    while tickets:
        yield wait(tickets.popleft())


def spans_of(start: int, stop: int, jobs: int) -> Iterator[Span]:
    """What is left of a grid, in pieces that keep every worker busy to the end."""
    size = max(1, min(CHUNK_COMBINATIONS, (stop - start) // (AHEAD * jobs)))
    return ((first, min(first + size, stop)) for first in range(start, stop, size))


def plan_span(packed: bytes, span: Span) -> bytes:
    """One chunk, planned and encoded where the worker runs."""
    start, stop = span
    return encode_chunk(Chunk(start, stop, list(unpacked(packed).rows(start, stop))))


@lru_cache(maxsize=1)
def unpacked(packed: bytes) -> Planner:
    """The sweep made ready, once a worker."""
    return Planner(pickle.loads(packed))


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Ctrl-C waits until the block is left, where the system can hold it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """A worker whose parent was killed ends too."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def available_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def local_workers(combinations: int, jobs: int | None) -> tuple[Workers, int]:
    """Processes of this machine and how many: all cores where the grid is worth it."""
    if jobs is None:
        jobs = available_cores() if combinations > SERIAL_COMBINATIONS else 1
    return (InProcess() if jobs == 1 else ProcessPool(jobs)), jobs
