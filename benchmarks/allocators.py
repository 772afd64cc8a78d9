"""Pool operations against their straightforward forms, interleaved in one run.

On the CPU (one thread) kvplan's torch references against plain torch; on a CUDA device its kernels
against one-program-per-request kernels. The forms are compared for equality before they are timed.

Usage: python benchmarks/allocators.py [--device auto|cpu|cuda] [--json] [--markdown]
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import torch
from baselines import per_request, plain_torch
from torch import Tensor
from whole_calls import WholeCall, whole_calls

from kvplan.kernels.alloc_decode import alloc_decode, alloc_decode_reference
from kvplan.kernels.alloc_extend import alloc_extend, alloc_extend_reference
from kvplan.kernels.compiled import compile_counts
from kvplan.kernels.decode_step import decode_step, decode_step_reference
from kvplan.kernels.unmap_pages import unmap_pages, unmap_pages_reference
from kvplan.kernels.write_rows import write_rows, write_rows_reference

DOCUMENT = Path(__file__).parents[1] / "docs" / "kernels.md"
BATCHES = [1, 8, 64, 512, 4096, 8192]
PAGE_SIZES = [1, 16, 64]
EXTEND_TOKENS = 64_000  # of the whole batch, at most 1,000 a request
LONGEST_PREFIX = 500
SECONDS_PER_ROW = 0.5
WARM_UP_ROUNDS, LEAST_ROUNDS = 3, 5

# kvplan's form first; the fastest of the others is the one to beat
FORMS: dict[str, dict[str, list[Callable[..., Any]]]] = {
    "cpu": {
        "extend": [
            alloc_extend_reference,
            plain_torch.extend_by_token,
            plain_torch.extend_by_request,
        ],
        "decode": [alloc_decode_reference, plain_torch.decode],
        "decode step": [decode_step_reference, plain_torch.decode_step],
        "write rows": [write_rows_reference, plain_torch.write_rows],
        "unmap pages": [unmap_pages_reference, plain_torch.unmap_pages],
    },
    "cuda": {
        "extend": [alloc_extend, per_request.extend],
        "decode": [alloc_decode, per_request.decode],
        "decode step": [decode_step, per_request.decode_step],
        "write rows": [write_rows, per_request.write_rows],
        "unmap pages": [unmap_pages, plain_torch.unmap_pages],
    },
}


class Row(NamedTuple):
    """One operation at one batch: median microseconds, host and device together; device alone on CUDA."""

    operation: str
    page_size: int
    batch: int
    tokens: int
    kvplan_us: float
    baseline_us: float
    kvplan_device_us: float | None = None
    baseline_device_us: float | None = None


WHOLE_CALLS = ["whole extend", "unchecked extend", "whole decode", "unchecked decode"]


class Inputs:
    """One random batch for all operations, with the tables that they change."""

    def __init__(self, device: str, batch: int, page_size: int) -> None:
        torch.manual_seed(batch * page_size)
        new = new_tokens(batch)
        num_pages = batch * (new // page_size + 2)
        prefix_lens = torch.randint(1, LONGEST_PREFIX, (batch,))
        seq_lens = prefix_lens + new
        last_loc = torch.randint(1, 9999, (batch,)) * page_size + (prefix_lens - 1) % page_size
        rows = torch.randperm(batch) + 1
        pages = torch.randperm(num_pages) + 1
        slots = torch.arange(batch * new)
        table = torch.zeros((batch + 1, LONGEST_PREFIX + new), dtype=torch.int32)
        table[rows, prefix_lens - 1] = last_loc.int()
        mapping = torch.arange((num_pages + 1) * page_size + 1)
        self.tables = [table.to(device), mapping.to(device)]
        table, mapping = self.tables
        sizes = (page_size, batch * new) if device == "cuda" else (page_size,)
        self.tokens = {"extend": batch * new, "write rows": batch * new}
        arguments = {
            "extend": (prefix_lens, seq_lens, last_loc, pages, *sizes),
            "decode": (prefix_lens + 1, last_loc, pages, page_size),
            "decode step": (table, rows, prefix_lens + 1, pages, page_size),
            "write rows": (table, rows, prefix_lens, seq_lens, slots),
            "unmap pages": (pages[:batch], mapping, page_size),
        }
        self.arguments = {
            operation: [
                value.to(device) if isinstance(value, Tensor) else value for value in values
            ]
            for operation, values in arguments.items()
        }

    def outcome(self, form: Callable[[], Any]) -> list[Tensor]:
        """What a form returns and leaves in the tables, which are put back."""
        before = [table.clone() for table in self.tables]
        result = form()
        after = [table.clone() for table in self.tables]
        for table, old in zip(self.tables, before, strict=True):
            table.copy_(old)
        return after if result is None else [*after, result]


def new_tokens(batch: int) -> int:
    """Tokens that an extend adds to each request."""
    return max(1, min(1000, EXTEND_TOKENS // batch))


def check_equal(inputs: Inputs, forms: list[Callable[[], Any]]) -> None:
    ours, *others = [inputs.outcome(form) for form in forms]
    for other in others:
        if not all(map(torch.equal, ours, other)):
            raise SystemExit(f"the forms disagree: {forms}")


def medians_us(forms: list[Callable[[], Any]], synchronize: Callable[[], None]) -> list[float]:
    """Each form once a round, so that whatever else the machine does meets all of them."""
    seconds: list[list[float]] = [[] for _ in forms]
    deadline = time.perf_counter() + SECONDS_PER_ROW
    while len(seconds[0]) < WARM_UP_ROUNDS + LEAST_ROUNDS or time.perf_counter() < deadline:
        for form, taken in zip(forms, seconds, strict=True):
            start = time.perf_counter()
            form()
            synchronize()
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken[WARM_UP_ROUNDS:]) * 1e6 for taken in seconds]


def measure_whole(operation: str, calls: list[WholeCall], page_size: int, batch: int) -> Row:
    """Whole calls in turns, each pool put back outside the timed part."""
    ours, *others = [call.form() for call in calls]
    if not all(torch.equal(ours, other) for other in others):
        raise SystemExit(f"the forms of {operation} disagree")
    for call, slots in zip(calls, [ours, *others], strict=True):
        call.reset(slots)
    seconds: list[list[float]] = [[] for _ in calls]
    deadline = time.perf_counter() + SECONDS_PER_ROW
    while len(seconds[0]) < WARM_UP_ROUNDS + LEAST_ROUNDS or time.perf_counter() < deadline:
        for call, taken in zip(calls, seconds, strict=True):
            start = time.perf_counter()
            slots = call.form()
            taken.append(time.perf_counter() - start)
            call.reset(slots)
    medians = [statistics.median(taken[WARM_UP_ROUNDS:]) * 1e6 for taken in seconds]
    return Row(operation, page_size, batch, len(ours), *medians)


def device_us(form: Callable[[], Any]) -> float:
    """Median time on the device alone, replayed from a CUDA graph."""
    from triton.testing import do_bench_cudagraph

    return float(do_bench_cudagraph(form, return_mode="median")) * 1e3


def measure(device: str, page_size: int, batch: int) -> list[Row]:
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    inputs = Inputs(device, batch, page_size)
    rows = []
    for operation, functions in FORMS[device].items():
        forms = [partial(function, *inputs.arguments[operation]) for function in functions]
        check_equal(inputs, forms)
        kvplan_us, *others = medians_us(forms, synchronize)
        alone = [device_us(form) for form in forms] if device == "cuda" else []
        tokens = inputs.tokens.get(operation, batch)
        rows.append(Row(operation, page_size, batch, tokens, kvplan_us, min(others), *alone))
    if device == "cpu":
        calls = whole_calls(page_size, batch, new_tokens(batch))
        rows += [measure_whole(name, calls[name], page_size, batch) for name in WHOLE_CALLS]
    return rows


def line(row: Row) -> str:
    """One printed line: times, ratio, and tokens per microsecond of kvplan's form."""
    alone = ""
    if row.kvplan_device_us and row.baseline_device_us:
        alone = f"{row.kvplan_device_us:>14.1f}{row.baseline_device_us:>14.1f}"
    return (
        f"{row.operation:<17}{row.page_size:>5}{row.batch:>7}{row.tokens:>8}{row.kvplan_us:>12.1f}"
        f"{row.baseline_us:>14.1f}{row.baseline_us / row.kvplan_us:>8.1f}x"
        f"{row.tokens / row.kvplan_us:>11.2f}{alone}"
    )


def markdown(rows: list[Row], device: str) -> str:
    """One line per operation and page size, one column per batch: kvplan / baseline (ratio)."""
    cells = {(row.operation, row.page_size, row.batch): row for row in rows}
    titles = " | ".join(f"batch {batch:,}" for batch in BATCHES)
    lines = [f"| operation | page | {titles} |", "| --- | --: |" + " --: |" * len(BATCHES)]
    for operation in [*FORMS[device], *(WHOLE_CALLS if device == "cpu" else [])]:
        for page_size in PAGE_SIZES:
            found = [cells[operation, page_size, batch] for batch in BATCHES]
            texts = " | ".join(cell(row) for row in found)
            lines.append(f"| {operation} | {page_size} | {texts} |")
    return "\n".join(lines)


def cell(row: Row) -> str:
    kvplan_us = row.kvplan_device_us or row.kvplan_us
    baseline_us = row.baseline_device_us or row.baseline_us
    return f"{kvplan_us:,.0f} / {baseline_us:,.0f} ({baseline_us / kvplan_us:.1f}×)"


def write_table(table: str, device: str) -> None:
    """Put a table between the document's markers of its device."""
    start, end = f"<!-- {device} table -->", f"<!-- end of {device} table -->"
    text = DOCUMENT.read_text()
    if start not in text or end not in text:
        raise SystemExit(f"{DOCUMENT.name} has no place marked '{start}'")
    pattern = re.escape(start) + ".*?" + re.escape(end)
    new = f"{start}\n{table}\n{end}"
    DOCUMENT.write_text(re.sub(pattern, lambda _: new, text, flags=re.DOTALL))


def machine(device: str) -> dict[str, str]:
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.machine(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


HEADER = (
    f"{'operation':<17}{'page':>5}{'batch':>7}{'tokens':>8}{'kvplan µs':>12}{'baseline µs':>14}"
    f"{'ratio':>9}{'tokens/µs':>11}"
)


def measure_all(device: str, out: TextIO) -> list[Row]:
    """Every operation, page size and batch, each line printed when it is known."""
    device_titles = f"{'device µs':>14}{'baseline':>14}" if device == "cuda" else ""
    print(HEADER + device_titles, file=out)
    rows = []
    for page_size in PAGE_SIZES:
        for batch in BATCHES:
            found = measure(device, page_size, batch)
            print(*map(line, found), sep="\n", file=out, flush=True)
            rows += found
    print("compiles:", compile_counts(), file=out)
    return rows


def choose_device(asked: str) -> str:
    found = "cuda" if torch.cuda.is_available() else "cpu"
    if asked == "cuda" and found == "cpu":
        raise SystemExit("no CUDA device")
    return found if asked == "auto" else asked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--json", action="store_true", help="print JSON, the table as progress")
    parser.add_argument("--markdown", action="store_true", help="rewrite docs/kernels.md's table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    device = choose_device(options.device)
    rows = measure_all(device, sys.stderr if options.json else sys.stdout)
    if options.markdown:
        write_table(markdown(rows, device), device)
    if options.json:
        found = {"machine": machine(device), "rows": [row._asdict() for row in rows]}
        print(json.dumps({**found, "compiles": compile_counts()}, indent=2, sort_keys=True))


if __name__ == "__main__":
    main()
