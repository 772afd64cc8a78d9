"""Records of the engine's answers, compared with kvplan's own: what `kvplan selftest` runs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import MsgspecError

from kvplan.errors import InputError, KvplanError
from kvplan.extras import has_torch, require_torch

Record = dict[str, Any]
SHIPPED = Path(__file__).parent / "data" / "selftest.jsonl.gz"
GZIP_MAGIC = b"\x1f\x8b"
# what values of another type or size than recorded ones end in
DAMAGE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MsgspecError,
    RuntimeError,
    TypeError,
    ValueError,
)


class Comparison(NamedTuple):
    """One record: its family, its name, and every difference ([] when it agrees)."""

    family: str
    name: str
    differences: list[str]


class Family(NamedTuple):
    """How many records of a family agree."""

    name: str
    agree: int
    total: int


class Kind(NamedTuple):
    """A kind of record: how to know it, what it belongs to, how it is compared."""

    name: str
    keys: frozenset[str]
    family: Callable[[Record], str]
    compare: Callable[[Record], list[str]]
    needs_torch: bool = False


def compare_sizing(record: Record) -> list[str]:
    from kvplan.conformance import answer
    from kvplan.differences import differences

    case = record["case"]
    return differences(case["id"], answer(case), record["answer"])


def compare_tensors(record: Record) -> list[str]:
    from kvplan.conformance import tensor_differences

    return tensor_differences(record["case"], record["tensors"])


def compare_allocator(record: Record) -> list[str]:
    from kvplan.conformance_allocators import replay_trace

    return replay_trace(record)


def compare_tree(record: Record) -> list[str]:
    from kvplan.replay.conformance import prefix_tree_differences

    return prefix_tree_differences(record)


def compare_schedule(record: Record) -> list[str]:
    """Through the accounting engine, and through real allocators where torch is installed."""
    from kvplan.replay.conformance import schedule_differences
    from kvplan.replay.counted import count_memory

    found = [f"accounting: {line}" for line in schedule_differences(record, count_memory)]
    if has_torch():
        from kvplan.pools.storage import open_storage
        from kvplan.replay.pools.build import build_memory

        storage = open_storage("cpu")
        lines = schedule_differences(record, lambda server: build_memory(server, storage))
        found += [f"pools: {line}" for line in lines]
    return found


def architecture(record: Record) -> str:
    return f"sizing {record['case']['config']['architectures'][0]}"


def schedule_family(record: Record) -> str:
    server = record["server"]
    pools = "full + sliding" if "sliding_window" in server else "one pool"
    loop = "overlapped" if server.get("overlap") else "plain"
    return f"schedule, {pools}, {loop}"


# the first kind whose keys a record has; trees also name an allocator
KINDS = (
    Kind("sizing", frozenset({"case", "answer"}), architecture, compare_sizing),
    Kind(
        "tensors",
        frozenset({"case", "tensors"}),
        lambda record: f"tensors {record['case']['config']['architectures'][0]}",
        compare_tensors,
        needs_torch=True,
    ),
    Kind(
        "prefix tree",
        frozenset({"policy", "ops"}),
        lambda record: f"prefix tree {record['policy']}",
        compare_tree,
    ),
    Kind(
        "allocator",
        frozenset({"allocator", "ops"}),
        lambda record: f"allocator {record['allocator']}",
        compare_allocator,
        needs_torch=True,
    ),
    Kind("schedule", frozenset({"server", "requests", "steps"}), schedule_family, compare_schedule),
)


def run(files: Iterable[Path]) -> Iterator[Comparison]:
    """Compare every record of the files, or of the shipped subset without any.

    The shipped subset leaves out what needs torch where it is missing; MissingExtra for a file.
    """
    files = tuple(files)
    for file in files or (SHIPPED,):
        for number, record in read_records(file):
            where = f"{file}:{number}"
            kind = kind_of(record, where)
            if kind.needs_torch and not has_torch():
                if not files:
                    continue
                require_torch(f"the {kind.name} record", where=where)
            yield compare_record(kind, record, where)


def compare_record(kind: Kind, record: Record, where: str) -> Comparison:
    """One record; a damaged one is refused by its line."""
    try:
        name = record.get("id") or record.get("case", {}).get("id") or Path(where).name
        return Comparison(kind.family(record), str(name), kind.compare(record))
    except KvplanError as error:
        raise InputError(str(error), where=where, hint=error.hint) from None
    except DAMAGE as error:
        raise InputError(
            f"not a whole {kind.name} record: {type(error).__name__} {error}", where=where
        ) from None


def kind_of(record: Any, where: str) -> Kind:
    """The kind whose keys the record has."""
    if isinstance(record, dict):
        for kind in KINDS:
            if kind.keys <= record.keys():
                return kind
    raise InputError(
        "not a record of the engine's answers",
        where=where,
        hint="see docs/selftest.md for the kinds",
    )


def read_records(file: Path) -> Iterator[tuple[int, Record]]:
    """Line number and JSON object of each line, gzipped or plain; tensors find their cases beside them."""
    try:
        raw = file.read_bytes()
        text = gzip.decompress(raw) if raw[:2] == GZIP_MAGIC else raw
    except (OSError, EOFError, gzip.BadGzipFile) as error:
        raise InputError(f"cannot be read: {error}", where=str(file)) from None
    cases: dict[str, Record] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"not JSON: {error}", where=f"{file}:{number}") from None
        if isinstance(record, dict) and "tensors" in record and "case" not in record:
            cases = sizing_cases(file.parent) if cases is None else cases
            if record.get("id") not in cases:
                raise InputError(
                    f"no sizing record has the id {record.get('id')!r}",
                    where=f"{file}:{number}",
                    hint="keep pools.jsonl beside the sizing files that it refers to",
                )
            record["case"] = cases[record["id"]]
        yield number, record


def sizing_cases(folder: Path) -> dict[str, Record]:
    """Cases of every sizing file in a folder, by id."""
    records = (
        record for file in sorted(folder.glob("sizing*.jsonl")) for _, record in read_records(file)
    )
    return {record["case"]["id"]: record["case"] for record in records}


def tally(comparisons: Iterable[Comparison]) -> tuple[Family, ...]:
    """Records that agree, per family in order of name."""
    counts: dict[str, list[int]] = {}
    for comparison in comparisons:
        count = counts.setdefault(comparison.family, [0, 0])
        count[0] += not comparison.differences
        count[1] += 1
    return tuple(Family(name, *counts[name]) for name in sorted(counts))
