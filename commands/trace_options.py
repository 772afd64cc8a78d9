"""The options of `kvplan trace` beside those that name a launch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from kvplan.errors import InputError, did_you_mean
from kvplan.replay.assumptions import Assumptions
from kvplan.replay.trace import INTERPRETED, Arrivals, PoolOptions
from kvplan.replay.workloads.named import workload_path
from kvplan.replay.workloads.options import ReadOptions
from kvplan.units import NS_PER_MS

from .render import check_name, check_output

WorkloadName = Annotated[
    str | None,
    typer.Option("--workload", metavar="FILE", help="A trace, or the name of a shipped workload."),
]
Engine = Annotated[
    str | None,
    typer.Option("--engine", help="accounting (numbers) or pools (real allocators and tensors)."),
]
Device = Annotated[
    str | None, typer.Option("--device", help="Of the pools: auto, cuda, cpu, interpret or meta.")
]
KvScale = Annotated[
    bool, typer.Option("--kv-scale", help="Pools with one small layer of each kind.")
]
Stamp = Annotated[
    bool, typer.Option("--stamp", help="Write a mark for each token and read all of them back.")
]
VerifyEvery = Annotated[
    int, typer.Option("--verify-every", min=0, help="Steps between two audits; 0: at the end.")
]
Live = Annotated[
    bool | None,
    typer.Option("--live/--no-live", help="Progress on stderr; default: on a terminal."),
]
Outputs = Annotated[
    list[Path] | None,
    typer.Option("--output", help="Write the report: .json, .csv or .html; may be repeated."),
]
Record = Annotated[
    Path | None,
    typer.Option(
        "--record", help="Write the operations (.jsonl) or the pools at the peak (.json)."
    ),
]
FailOn = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on", metavar="CONDITION", help="retraction, rejection, occupancy>0.95, wait_p99>2s."
    ),
]
Shrink = Annotated[
    bool, typer.Option("--shrink", help="After a violation, find the shortest prefix that fails.")
]

OUTPUTS = (".json", ".csv", ".html")
RECORDS = (".json", ".jsonl")
MAX_RATE = 10**9
MAX_TPOT_MS = 10**7


ENGINES = ("accounting", "pools")
DEVICES = ("auto", "cuda", "cpu", INTERPRETED, "meta")


def arrivals(name: str | None, format: str | None, options: ReadOptions) -> Arrivals:
    """The workload that is named; InputError where none is."""
    if name is None:
        raise InputError(
            "no workload is named", hint="add --workload with a trace file or a shipped name"
        )
    return Arrivals(path=workload_path(name), format=format, options=options)


def pool_options(
    engine: str | None, device: str | None, record: Path | None, **switches: Any
) -> PoolOptions | None:
    """How pools are built; None for the accounting engine, which is taken unless pools are asked for."""
    if device is not None and not device.startswith("cuda:"):
        one_of("--device", device, DEVICES)
    if engine is not None:
        one_of("--engine", engine, ENGINES)
    flags = {
        "--device": device is not None,
        "--record": record is not None,
        **{f"--{name.replace('_', '-')}": value for name, value in switches.items()},
    }
    del flags["--verify-every"]
    asked = [flag for flag, given in flags.items() if given]
    if engine == "accounting" and asked:
        raise InputError(f"{asked[0]} needs pools", hint="use --engine pools, or leave it out")
    if engine != "pools" and not asked:
        return None
    stored = [flag for flag in asked if flag in ("--record", "--shrink", "--stamp")]
    if device == "meta" and stored:
        raise InputError(
            f"{stored[0]} needs slots, on meta there are none", hint="use --device cpu"
        )
    return PoolOptions(device=device or "auto", record=record, **switches)


def assumptions(max_new: str, tpot_ms: float, prefill_rate: float) -> Assumptions:
    """Assumptions from their flags; InputError where one is no such value."""
    if not 0.000001 <= tpot_ms <= MAX_TPOT_MS:
        raise InputError(
            f"--tpot {tpot_ms:g} is no step time", hint="milliseconds above 0, e.g. --tpot 20"
        )
    if not 1 <= prefill_rate <= MAX_RATE:
        raise InputError(
            f"--prefill-rate {prefill_rate:g} is no rate", hint="tokens a second, e.g. 20000"
        )
    return Assumptions(
        max_new=wish(max_new),
        decode_ns=max(1, round(tpot_ms * NS_PER_MS)),
        prefill_tokens_per_s=int(prefill_rate),
    )


def wish(text: str) -> int | Literal["exact", "context"]:
    """`exact`, `context`, or a number of tokens (`fixed N` means the same)."""
    word = text.strip().lower()
    if word in ("exact", "context"):
        return "exact" if word == "exact" else "context"
    digits = word.removeprefix("fixed").strip(" :=")
    if not digits.isdecimal() or len(digits) > 9:
        raise InputError(
            f"--max-new '{text}' is no number of tokens",
            hint="exact, context, or a whole number: --max-new 512",
        )
    return int(digits)


def one_of(flag: str, value: str, known: Sequence[str]) -> None:
    """InputError with the nearest choice where it is none."""
    if value not in known:
        raise InputError(f"{flag} '{value}' is unknown", hint=did_you_mean(value, known))


def check_files(workload: Path, outputs: Sequence[Path], record: Path | None) -> None:
    """Refuse names that could not be written, stand twice, or would overwrite the workload."""
    check_name(workload, "--workload")
    named: list[tuple[str, Path, Sequence[str]]] = []
    named += [("--output", path, OUTPUTS) for path in outputs]
    named += [("--record", record, RECORDS)] if record is not None else []
    writers: dict[Path, str] = {}
    for flag, path, suffixes in named:
        check_output(path, suffixes, flag)
        whole = path.resolve()
        if whole == workload.resolve():
            raise InputError(f"{flag} would overwrite the workload '{path}'", hint="name another")
        if whole in writers:
            raise InputError(
                f"{writers[whole]} and {flag} both name '{path}'", hint="give each its own"
            )
        writers[whole] = flag
