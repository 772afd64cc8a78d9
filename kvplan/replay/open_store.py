"""The store that a launch needs: one pool, a sliding pool beside it, or recurrent states."""

from __future__ import annotations

from typing import cast

from kvplan.replay.memory import KvMemory, SlidingMemory, StateMemory
from kvplan.replay.server import Server
from kvplan.replay.sliding_store import SlidingStore
from kvplan.replay.state_store import StateStore
from kvplan.replay.store import KvStore


def open_store(server: Server, memory: KvMemory) -> KvStore:
    """A store over memory that was built for the same launch."""
    if server.sliding is not None:
        return SlidingStore(server, server.sliding, cast(SlidingMemory, memory))
    if server.states is not None:
        return StateStore(server, server.states, cast(StateMemory, memory))
    return KvStore(server, memory)
