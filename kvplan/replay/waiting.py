"""The order in which waiting requests are looked at."""

from __future__ import annotations

from collections import deque
from itertools import islice

from kvplan.replay.prefix_cache import PrefixCache
from kvplan.replay.sequence import Sequence
from kvplan.replay.server import Server
from kvplan.replay.store import KvStore

MATCH_LIMIT = 128  # waiting requests beyond which prefixes are not compared
REFRESH_INTERVAL = 32  # passes between two refreshes of what the queue will need
SHARED_PREFIX = 32  # IN_BATCH_PREFIX_CACHING_*_THRESHOLD: tokens that make two requests of one kind


class WaitingQueue:
    """First come, first served; or by longest cached prefix, while the queue is short."""

    def __init__(self, server: Server, store: KvStore) -> None:
        self.requests: deque[Sequence] = deque()
        self._store = store
        self._by_prefix = server.schedule_policy == "lpm" and server.prefix_cache
        self._refreshes = server.prefix_cache and server.eviction_policy == "lru"
        self._passes = 0

    def arrange(self) -> None:
        """Put the queue in order before a prefill pass."""
        if self._by_prefix and len(self.requests) <= MATCH_LIMIT:
            self._sort_by_prefix()
        elif self._refreshes and self.requests:
            if self._passes % REFRESH_INTERVAL == 0:
                self._refresh()
            self._passes += 1

    def _refresh(self) -> None:
        """Mark as recent what the queue will need, its head last."""
        for sequence in reversed(list(islice(self.requests, MATCH_LIMIT))):
            self._store.cache.match(sequence.key, sequence.seq_len())

    def _sort_by_prefix(self) -> None:
        """Longest cached prefix first; of uncached ones that start alike only the first counts."""
        beginnings = PrefixCache(1, lambda _: None)
        deferred = set()
        for sequence in self.requests:
            length = sequence.seq_len()
            matched = self._store.cache.match(sequence.key, length).prefix_len
            sequence.matched_len = min(matched, length - 1)
            if matched <= SHARED_PREFIX:
                if beginnings.match(sequence.key, length).prefix_len >= SHARED_PREFIX:
                    deferred.add(sequence.rid)
                else:
                    beginnings.insert(sequence.key, range(length))
        self.requests = deque(
            sorted(
                self.requests,
                key=lambda sequence: (
                    (1, 0) if sequence.rid in deferred else (0, -sequence.matched_len)
                ),
            )
        )
