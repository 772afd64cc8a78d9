"""Rows planned by the workers of a Ray cluster."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from kvplan.errors import KvplanError, MissingExtra, WorkerError
from kvplan.search.sweep_plan import SweepPlan
from kvplan.search.workers import AHEAD, Chunks, Span, in_order, plan_span

CONNECT_S = 5.0
LOCAL = "local"  # a cluster of this machine alone, ended with the sweep


class RayCluster:
    """A cluster by its address, or one of this machine with so many workers."""

    def __init__(self, address: str, jobs: int) -> None:
        self.address = address
        self.jobs = jobs

    def chunks(self, sweep: SweepPlan, spans: Iterable[Span]) -> Chunks:
        """WorkerError where the cluster is not reached, or has no kvplan of this version."""
        ray = import_ray()
        connect(ray, self.address, self.jobs)
        try:
            packed = ray.put(pickle.dumps(sweep))
            task = ray.remote(plan_span_of)
            own = version("kvplan-pools")
            yield from in_order(
                lambda span: task.remote(packed, span, own),
                ray.get,
                spans,
                AHEAD * int(ray.cluster_resources().get("CPU", 1)),
            )
        except ray.exceptions.RayError as error:
            raise refusal(error) from None
        finally:
            ray.shutdown()


def plan_span_of(packed: bytes, span: Span, wanted: str) -> bytes:
    """One chunk on a node that has the caller's version of kvplan."""
    own = version("kvplan-pools")
    if own != wanted:
        raise WorkerError(
            f"a node of the cluster has kvplan {own}, this machine {wanted}",
            hint="install the same kvplan-pools on every node",
        )
    return plan_span(packed, span)


def import_ray() -> Any:
    """Ray without its reports on usage; MissingExtra where it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise MissingExtra(
            "a Ray cluster needs ray", hint="pip install 'kvplan-pools[ray]'"
        ) from None
    return ray


def connect(ray: Any, address: str, jobs: int) -> None:
    """Join the cluster, or start one here; WorkerError where that fails."""
    if address not in (LOCAL, "auto"):
        check_reachable(address)
    where = {"num_cpus": jobs, "include_dashboard": False} if address == LOCAL else {}
    try:
        ray.init(
            None if address == LOCAL else address,
            log_to_driver=False,
            logging_level="ERROR",
            **where,
        )
    except (OSError, RuntimeError, ValueError, AssertionError) as error:
        raise unreachable(address, first_line(error)) from None


def check_reachable(address: str) -> None:
    """Refuse at once an address where nobody answers: Ray itself tries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or len(port) > 5:
        raise unreachable(address, "not a host and its port")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise unreachable(address, first_line(error)) from None


def unreachable(address: str, reason: str) -> WorkerError:
    return WorkerError(
        f"no Ray cluster at '{address}': {reason}",
        hint="give its head's host:port, or 'auto' on one of its nodes; without an address a local one starts",
    )


def refusal(error: Any) -> BaseException:
    """What went wrong on the cluster: a task's own refusal, a node without kvplan, a lost cluster."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, KvplanError):
        return cause
    if cause is not None and not isinstance(cause, ImportError | RuntimeError):
        return cause  # type: ignore[no-any-return]
    return WorkerError(
        f"the cluster cannot plan: {first_line(cause or error)}",
        hint="install the same kvplan-pools on every node; --resume continues a result with --output",
    )


def first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
