"""SGLang's JSON request log: arrivals from received lines, lengths from finished ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from kvplan.replay.workloads.clock import SECOND, WallClock, number_ns
from kvplan.replay.workloads.jsonrows import undecoded
from kvplan.replay.workloads.options import ReadOptions
from kvplan.replay.workloads.rows import BadRow, Row, token_count
from kvplan.replay.workloads.stream import Source, numbered_lines
from kvplan.replay.workloads.tally import Tally
from kvplan.replay.workloads.tokens import IGNORES_EOS, LEFT_OUT, Parameters, token_identity

HEALTH_CHECK = "HEALTH_CHECK"
MARK = re.compile(rb'"event": ?"request\.')
MAX_UNFINISHED = 1_000_000


class Meta(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    e2e_latency: int | float | None = None


class Out(msgspec.Struct, frozen=True):
    meta_info: Meta
    output_ids: msgspec.Raw = LEFT_OUT


class LogLine(msgspec.Struct, frozen=True):
    timestamp: str
    event: str
    rid: str | list[str] | None = None
    obj: Parameters | None = None
    out: Out | None = None


def read(source: Source, tally: Tally, options: ReadOptions) -> Iterator[Row]:
    """Rows in the order in which the requests finished."""
    del options
    decode = msgspec.json.Decoder(LogLine).decode
    log = Log(tally)
    for line, text in numbered_lines(source):
        event = request_event(text)
        if event is None:
            tally.read += 1
            tally.dropped["another log line"] += 1
            continue
        try:
            try:
                value = decode(event)
            except (msgspec.MsgspecError, RecursionError) as error:
                raise undecoded(error, event) from None
            row = log.take(line, value)
        except BadRow as error:
            tally.read += 1
            tally.bad(error, source.where(line))
        else:
            if row is not None:
                yield row
    log.finish()


def request_event(line: bytes) -> bytes | None:
    """The JSON of a request's line, behind the time that the server's logger puts before it."""
    event = line[line.find(b"{") :]
    return event if event.startswith(b"{") and MARK.search(event) else None


class Log:
    """Requests that were received and have not finished yet."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.clock = WallClock()
        self.arrivals: dict[str, int] = {}

    def take(self, line: int, entry: LogLine) -> Row | None:
        """The request that a line finishes, None for any other line."""
        now_ns = self.clock.ns(entry.timestamp)
        if entry.event == "request.received":
            rids = entry.rid if isinstance(entry.rid, list) else [entry.rid or ""]
            self.arrivals.update(dict.fromkeys(rids, now_ns))
            while len(self.arrivals) > MAX_UNFINISHED:
                self.arrivals.pop(next(iter(self.arrivals)))
                self.drop("never finished")
        if entry.event != "request.finished":
            return None
        if not isinstance(entry.rid, str) or entry.out is None:
            raise BadRow("a finished request without 'rid' or 'out'")
        meta = entry.out.meta_info
        arrival_ns = self.arrivals.pop(entry.rid, None)
        if arrival_ns is None and meta.e2e_latency is not None:
            arrival_ns = max(now_ns - number_ns(meta.e2e_latency, SECOND, "e2e_latency"), 0)
        if HEALTH_CHECK in entry.rid:
            self.drop("health check")
        elif meta.prompt_tokens is None or meta.completion_tokens is None:
            self.drop("no token counts (aborted, or an embedding)")
        elif arrival_ns is None:
            self.drop("no arrival in this file")
        else:
            row = finished_row(line, entry, arrival_ns)
            self.tally.read += 1
            if entry.obj is not None and entry.obj.ignores_eos:
                self.tally.flagged[IGNORES_EOS] += 1
            return row
        return None

    def finish(self) -> None:
        """Count what was still running when the log ended."""
        for _ in range(len(self.arrivals)):
            self.drop("never finished")
        self.arrivals.clear()

    def drop(self, reason: str) -> None:
        self.tally.read += 1
        self.tally.dropped[reason] += 1


def finished_row(line: int, entry: LogLine, arrival_ns: int) -> Row:
    """The request of a finished line that has its token counts."""
    asked, out = entry.obj or Parameters(), entry.out or Out(Meta())
    input_len = token_count(out.meta_info.prompt_tokens or 0, "prompt_tokens")
    output_len = token_count(out.meta_info.completion_tokens or 0, "completion_tokens")
    return Row(
        arrival_ns,
        input_len,
        output_len,
        line,
        str(entry.rid),
        asked.max_new,
        asked.session_id,
        token_identity(asked.input_ids, input_len, out.output_ids, output_len),
    )


def layout(keys: Sequence[str], sample: Any) -> str:
    del keys, sample
    return "received and finished lines are joined by their rid"
