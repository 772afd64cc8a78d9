"""Workload files of our own, and what is asked of a reader again and again."""

from __future__ import annotations

from pathlib import Path

from kvplan.replay.requests import BlockIds, Request, TokenIds, TokenRuns
from kvplan.replay.runs import RunKey
from kvplan.replay.workloads.options import ReadOptions
from kvplan.replay.workloads.workload import Workload, open_workload

DATA = Path(__file__).resolve().parents[2] / "data" / "workloads"
SUPPLIED = ReadOptions(request_rate=float("inf"), output_len=128)


def requests(path: Path, **options) -> list[Request]:
    """All requests of a file."""
    return list(opened(path, **options))


def opened(path: Path, *, format: str | None = None, **options) -> Workload:
    """A workload opened with options given by name."""
    return open_workload(path, format=format, options=ReadOptions(**options))


def lengths(found: list[Request]) -> list[tuple[float, int, int]]:
    """(seconds, input, output) of each request."""
    return [(request.t_ns / 1e9, request.input_len, request.output_len) for request in found]


def block_ids(request: Request) -> tuple[int, ...]:
    """Hash ids of a request that must have them."""
    assert isinstance(request.identity, BlockIds)
    return request.identity.ids


def token_ids(request: Request) -> TokenIds:
    """Tokens of a request that must have them."""
    identity = request.identity
    if isinstance(identity, TokenRuns):
        ids = tuple(RunKey(identity).known(0, identity.length))
        prompt, output = ids[: request.input_len], ids[request.input_len :]
        return TokenIds(prompt=prompt, output=output)
    assert isinstance(identity, TokenIds)
    return identity
