"""WEKA agent sessions: one JSON document a session, nested sub-agents, hashed blocks of 64 tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kvplan.errors import TraceError
from kvplan.replay.workloads.blocks import leading
from kvplan.replay.workloads.clock import SECOND, number_ns
from kvplan.replay.workloads.compression import reason_of
from kvplan.replay.workloads.jsonrows import undecoded
from kvplan.replay.workloads.options import ReadOptions
from kvplan.replay.workloads.rows import OUT_OF_RANGE, BadRow, Row, shown, token_count
from kvplan.replay.workloads.stream import (
    MAX_DOCUMENT_BYTES,
    Source,
    numbered_lines,
    open_source,
    whole,
)
from kvplan.replay.workloads.supplied import supplied_arrivals
from kvplan.replay.workloads.tally import Tally

BLOCK_SIZE = 64
MAX_NESTING = 50
LOCAL, GLOBAL = SCOPES = ("local", "global")


class Call(msgspec.Struct, frozen=True):
    """A model call, or a sub-agent with calls of its own."""

    t: int | float
    type: str = "n"
    input_len: int | None = msgspec.field(default=None, name="in")
    output_len: int | None = msgspec.field(default=None, name="out")
    hash_ids: tuple[int, ...] = ()
    requests: tuple[Call, ...] = ()


class Session(msgspec.Struct, frozen=True):
    requests: tuple[Call, ...]
    id: str | int = ""
    block_size: int = BLOCK_SIZE
    hash_id_scope: str = LOCAL


class Placed(msgspec.Struct, frozen=True):
    """A session, where it stands, and the namespace of its hash ids."""

    session: Session
    source: Source
    line: int
    name: str


def read(source: Source, tally: Tally, options: ReadOptions) -> Iterator[Row]:
    """Rows session after session; several sessions need a rate at which they start."""
    starts = supplied_arrivals(options, "") if options.request_rate is not None else None
    for number, placed in enumerate(sessions(source, tally)):
        if starts is None and number:
            raise TraceError(
                "several sessions, and no record of when each one started",
                where=placed.source.where(placed.line),
                hint="--request-rate 0.1 starts them at 0.1 a second, --request-rate inf all at time 0",
            )
        start_ns = 0 if starts is None else next(starts)
        yield from session_rows(placed, tally, options, start_ns)


def sessions(source: Source, tally: Tally) -> Iterator[Placed]:
    """Every session of a document, of JSON lines, or of a folder of documents."""
    decoder = msgspec.json.Decoder(Session)
    taken: set[str] = set()
    for part in parts(source):
        for line, text in documents(part):
            try:
                try:
                    session = decoder.decode(text)
                except (msgspec.MsgspecError, RecursionError) as error:
                    raise undecoded(error, text) from None
                if session.hash_id_scope not in SCOPES:
                    scope = shown(session.hash_id_scope)
                    raise BadRow(f"'hash_id_scope' is {scope}, neither 'local' nor 'global'")
            except BadRow as error:
                tally.read += 1
                tally.bad(error, part.where(line))
                continue
            name = str(session.id) or part.path.name.partition(".")[0]
            if name in taken:
                name = f"{name}#{len(taken) + 1}"
            taken.add(name)
            yield Placed(session, part, line, name)


def parts(source: Source) -> list[Source]:
    """The files of a folder in the order of their names, or the file itself."""
    if not source.path.is_dir():
        return [source]
    return [open_source(path) for path in folder_files(source.path)]


def folder_files(folder: Path) -> list[Path]:
    """Session documents of a folder."""
    try:
        return sorted(path for path in folder.iterdir() if ".json" in path.suffixes)
    except OSError as error:
        raise TraceError(f"cannot read: {reason_of(error)}", where=str(folder)) from None


def documents(source: Source) -> Iterator[tuple[int, bytes]]:
    """(line, text) of each document: a line each, or the whole file where its first line is no object."""
    lines = numbered_lines(source, MAX_DOCUMENT_BYTES)
    line, first = next(lines, (1, b""))
    if not is_complete(first):
        yield line, whole(source)
        return
    yield line, first
    yield from lines


def is_complete(text: bytes) -> bool:
    """Whether one line is a whole JSON value."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def session_rows(
    placed: Placed, tally: Tally, options: ReadOptions, start_ns: int
) -> Iterator[Row]:
    """The calls of one session in order of time."""
    where = placed.source.where(placed.line)
    block_size = options.block_size or placed.session.block_size
    rows: list[Row] = []
    try:
        if block_size < 1:
            raise BadRow(f"'block_size' is {block_size}", reason=OUT_OF_RANGE)
        calls = list(flat(placed.session.requests, 0, tally))
    except BadRow as error:
        tally.read += 1
        tally.bad(error, where)
        return
    for number, (t_ns, call) in enumerate(calls):
        tally.read += 1
        try:
            rows.append(call_row(placed, number, start_ns + t_ns, call, block_size))
        except BadRow as error:
            error.problem = f"request {number} of session {shown(placed.name)}: {error.problem}"
            tally.bad(error, where)
    rows.sort(key=lambda row: row.t_ns)
    yield from rows


def call_row(placed: Placed, number: int, t_ns: int, call: Call, block_size: int) -> Row:
    if call.input_len is None or call.output_len is None:
        missing = "in" if call.input_len is None else "out"
        raise BadRow(f"no '{missing}'")
    namespace = "" if placed.session.hash_id_scope == GLOBAL else placed.name
    input_len = token_count(call.input_len, "in")
    return Row(
        t_ns,
        input_len,
        token_count(call.output_len, "out"),
        placed.line,
        f"{placed.name}/{number}",
        session=placed.name,
        identity=leading(call.hash_ids, input_len, block_size, namespace),
    )


def flat(
    calls: Sequence[Call], base_ns: int, tally: Tally, depth: int = 0
) -> Iterator[tuple[int, Call]]:
    """(ns in the session, call) of all calls, those of sub-agents included.

    A sub-agent's times count from its own start where the first lies before that start, and from
    the session's start otherwise: recorders do either.
    """
    if depth > MAX_NESTING:
        raise BadRow(f"sub-agents nested deeper than {MAX_NESTING} levels")
    for call in calls:
        t_ns = number_ns(call.t, SECOND, "t")
        if not call.requests:
            if call.type != "subagent":
                yield base_ns + t_ns, call
            continue
        relative = min(inner.t for inner in call.requests) < call.t
        origin = "sub-agent" if relative else "session"
        tally.note(f"times of sub-agents count from the start of the {origin}")
        yield from flat(call.requests, base_ns + t_ns if relative else base_ns, tally, depth + 1)


def layout(keys: Sequence[str], sample: Any) -> str:
    del keys, sample
    return "ids are local to each session; the prompt behind its last whole block is not hashed"
