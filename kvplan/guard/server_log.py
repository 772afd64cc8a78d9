"""SGLang's start-up log: memory, pools, graphs and limits of each rank, with the line of every figure."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec

from kvplan.errors import InputError
from kvplan.guard.log_lines import EVENTS, FLOATS, PATTERNS, TEXTS, LinePattern

PIPED = Path("-")
MAX_BYTES = 256 << 20
MAX_LINE = 256 << 10
MAX_FIGURES = 200_000
MAX_EVENTS = 1000
COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
RANK = r"[A-Z]+(?:_[A-Z]+)*\d+"
PREFIX = re.compile(
    rf"\[(?:\d{{4}}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,\d]*(?P<timed>(?: {RANK})*)|(?P<bare>{RANK}(?: {RANK})*))\] ?"
)


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of the log."""

    name: str
    """as in the engine's log; _gib counts in 2^30 bytes, _gb (host memory) in 10^9"""
    value: int | float | str
    printed: str
    """the figure's own spelling, whose last digit is its precision"""
    line: int
    rank: str
    """as in the log's prefix, such as "DP0 TP3"; empty where there is one process"""
    draft: bool
    """whether it belongs to the draft model"""

    @property
    def rounding(self) -> float:
        """Half of the last printed digit."""
        _, point, digits = self.printed.partition(".")
        return 0.5 * 10.0 ** -len(digits) if point else 0.0


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A remark or failure that the engine logged."""

    kind: str
    text: str
    line: int
    rank: str


class ServerLog(msgspec.Struct, frozen=True, kw_only=True):
    """What one start of a server logged; of several starts in a file it is the last."""

    file: str
    figures: tuple[Figure, ...]
    events: tuple[Event, ...]
    arguments: dict[str, Any]
    """server arguments as the engine resolved and printed them; empty where it did not"""
    starts: int
    """how often a server is started in the file"""
    truncated: bool
    """whether the file is longer than what was read"""

    @property
    def ranks(self) -> tuple[str, ...]:
        """Ranks in the order in which they appear."""
        return tuple(dict.fromkeys(figure.rank for figure in self.figures))

    def all(self, name: str, *, draft: bool = False) -> tuple[Figure, ...]:
        """Every figure of a name, in the order of the log."""
        return tuple(each for each in self.figures if each.name == name and each.draft == draft)

    def get(self, name: str, *, draft: bool = False) -> Figure | None:
        """The last figure of a name on the rank that logged it first, None where there is none."""
        found = self.all(name, draft=draft)
        return [each for each in found if each.rank == found[0].rank][-1] if found else None

    def value(self, name: str, *, draft: bool = False) -> Any:
        """The value of `get`."""
        figure = self.get(name, draft=draft)
        return None if figure is None else figure.value

    def least(self, name: str, *, draft: bool = False) -> Figure | None:
        """The smallest figure of a name over all ranks, which is what the engine sizes by."""
        return min(self.all(name, draft=draft), key=lambda each: float(each.value), default=None)

    def where(self, figure: Figure) -> str:
        """`file:line` of a figure."""
        return f"{self.file}:{figure.line}"


def read_log(path: Path) -> ServerLog:
    """Read a log file, `-` for standard input; InputError where no SGLang start-up is in it."""
    piped = path == PIPED
    where = "standard input" if piped else str(path)
    if piped and sys.stdin is None:
        raise InputError("it is closed", where=where, hint="name a file, or pipe the log in")
    try:
        with nullcontext(sys.stdin.buffer) if piped else path.open("rb") as file:
            lines = (chunk.decode("utf-8", "replace") for chunk in chunks(file, where))
            log = read_lines(lines, where)
            truncated = bool(file.read(1))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"cannot read: {reason}", where=where) from None
    return msgspec.structs.replace(log, truncated=truncated)


def parse_log(text: str, where: str) -> ServerLog:
    """Read a log's text."""
    return read_lines(iter(text.split("\n")), where)


def chunks(file: Any, where: str) -> Iterator[bytes]:
    """Lines of a binary file up to a limit; the rest of an overlong line is passed over."""
    total = 0
    while total <= MAX_BYTES:
        line = file.readline(MAX_LINE)
        if not line:
            return
        if not total and b"\0" in line:
            raise InputError("not a text file (it holds NUL bytes)", where=where)
        yield line
        total += len(line)
        while not line.endswith(b"\n") and len(line) == MAX_LINE:
            line = file.readline(MAX_LINE)
            total += len(line)


def read_lines(lines: Iterable[str], where: str) -> ServerLog:
    """Read a log line by line."""
    reader = LogReader()
    for number, line in enumerate(lines, 1):
        if not line_of_traffic(line) and MENTIONED.search(line):
            reader.line(line[:MAX_LINE], number)
    if not reader.figures and not reader.events:
        raise InputError(
            "no line of an SGLang start-up is in this file",
            where=where,
            hint="it takes the server's output from its start on, such as 'Load weight end. …'",
        )
    return ServerLog(
        file=where,
        figures=tuple(reader.figures),
        events=tuple(reader.events),
        arguments=reader.arguments,
        starts=max(1, reader.starts),
        truncated=False,
    )


class LogReader:
    """What has been read of the current start, and how far each rank is."""

    def __init__(self) -> None:
        self.figures: list[Figure] = []
        self.events: list[Event] = []
        self.arguments: dict[str, Any] = {}
        self.starts = 0
        self.ended: dict[tuple[str, str], int] = {}
        self.pools: dict[tuple[str, str], list[range]] = {}

    def line(self, text: str, number: int) -> None:
        """Read one line, which may hold messages of several ranks and a progress bar."""
        for rank, message in messages(COLOUR.sub("", text)):
            if "server_args=" in message:
                self.start(message)
            for pattern in PATTERNS:
                if pattern.words in message:
                    self.match(pattern, message, rank, number)
            for words, kind in EVENTS.items():
                if words in message and len(self.events) < MAX_EVENTS:
                    shown = message.strip()[:400]
                    self.events.append(Event(kind=kind, text=shown, line=number, rank=rank))

    def start(self, message: str) -> None:
        """A server starts: what an earlier one logged is dropped, unless it has only begun."""
        from kvplan.guard.log_arguments import read_server_args

        self.starts += 1
        if any(figure.name == "max_total_num_tokens" for figure in self.figures) or self.events:
            self.figures, self.events = [], []
            self.ended, self.pools = {}, {}
        self.arguments = read_server_args(message)

    def match(self, pattern: LinePattern, message: str, rank: str, number: int) -> None:
        """Keep the figures of one message."""
        found = pattern.pattern.search(message)
        if not found:
            return
        before = len(self.figures)
        stage = (rank, pattern.stage or "")
        draft = bool(pattern.stage) and self.ended.get(stage, 0) > 0
        for name, printed in found.groupdict().items():
            if printed is not None and before < MAX_FIGURES:
                self.figures.append(
                    Figure(
                        name=name,
                        value=value_of(name, printed),
                        printed=printed,
                        line=number,
                        rank=rank,
                        draft=draft,
                    )
                )
        if pattern.words in {"Load weight end", "Memory pool end"}:
            self.ended[stage] = self.ended.get(stage, 0) + 1
        if pattern.words == "KV Cache is allocated":
            span = range(before, len(self.figures))
            self.pools[stage] = [*self.pools.get(stage, [])[-1:], span]
        if pattern.words == "SWAKVPool":
            self.name_sliding(self.pools.pop(stage, []), found.groupdict())

    def name_sliding(self, pools: list[range], sizes: dict[str, str | None]) -> None:
        """Name the figures of the two KV pools before a SWAKVPool line swa_… and full_…."""
        for position, span in enumerate(pools if len(pools) == 2 else []):
            printed = {self.figures[index].name: self.figures[index].printed for index in span}
            kind = pool_kind(printed, sizes, position)
            for index in span:
                figure = self.figures[index]
                name = f"{kind}_{figure.name}"
                self.figures[index] = msgspec.structs.replace(figure, name=name)


def pool_kind(pool: dict[str, str], sizes: dict[str, str | None], position: int) -> str:
    """Whether a pool is the swa or the full one: by its label, by its tokens, else swa comes first."""
    label = pool.get("kv_label")
    if label in {"SWA", "Full"}:
        return label.lower()
    by_tokens = {sizes["full_size"]: "full", sizes["swa_size"]: "swa"}
    tokens = pool.get("num_tokens")
    if len(by_tokens) == 2 and tokens in by_tokens:
        return by_tokens[tokens]
    return "full" if position else "swa"


def messages(text: str) -> Iterator[tuple[str, str]]:
    """(rank, message) of each message in a line; a line without a prefix belongs to no rank."""
    at, rank = 0, ""
    for prefix in PREFIX.finditer(text):
        if prefix.start() > at:
            yield rank, text[at : prefix.start()]
        rank = (prefix["timed"] or prefix["bare"] or "").strip()
        at = prefix.end()
    if at < len(text):
        yield rank, text[at:]


def line_of_traffic(text: str) -> bool:
    """Whether a line is one of those that a serving engine repeats without end."""
    return "Decode batch" in text or "Prefill batch" in text or "HTTP/1.1" in text


def value_of(name: str, printed: str) -> int | float | str:
    """A figure's value by the kind that its name has."""
    if name in TEXTS:
        return printed
    if name in FLOATS or name.endswith(("_gib", "_gb")):
        return float(printed)
    return int(printed[:30])


MENTIONED = re.compile(
    "|".join(
        re.escape(words)
        for words in dict.fromkeys(
            [pattern.words for pattern in PATTERNS] + [*EVENTS, "server_args="]
        )
    )
)
