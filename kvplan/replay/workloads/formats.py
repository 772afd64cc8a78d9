"""The workload formats by what their rows must hold, and the files that are recognised but refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, Protocol, cast

import msgspec

from kvplan.replay.workloads.options import ReadOptions
from kvplan.replay.workloads.rows import Row
from kvplan.replay.workloads.stream import Source
from kvplan.replay.workloads.tally import Tally


class Reader(Protocol):
    """What a format's module offers."""

    def read(self, source: Source, tally: Tally, options: ReadOptions) -> Iterator[Row]:
        """Rows in file order, bad ones through `tally.bad`."""

    def layout(self, keys: Sequence[str], sample: Any) -> str:
        """Which variant of the format, and what says so, from the keys and the first row."""


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """One format: its kinds of file, the columns or keys that tell it, the flags it honours.

    For a flag that it does not honour, `instead` says what does the same.

    Its rows (or its one document) have all of `required` and none of `absent`. A JSON object may
    be `spread` over many lines where a file is one document.
    """

    name: str
    title: str
    kinds: tuple[str, ...]
    required: frozenset[str]
    absent: frozenset[str] = frozenset()
    spread: bool = False
    honours: frozenset[str] = frozenset()
    instead: dict[str, str] = {}

    def reader(self) -> Reader:
        """The module that reads it, imported on first use."""
        return cast(Reader, import_module(f"kvplan.replay.workloads.{self.name}"))


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of file that kvplan knows and does not replay, with the reason."""

    title: str
    kinds: tuple[str, ...]
    required: frozenset[str]
    reason: str
    absent: frozenset[str] = frozenset()


def keys(*names: str) -> frozenset[str]:
    return frozenset(names)


CSV, JSON, YAML = "csv", "json", "yaml"
HASHED = keys("--block-size")
TIMED = keys("--time-unit")
RATED = keys("--request-rate", "--seed")

FORMATS: dict[str, Format] = {
    format.name: format
    for format in (
        Format(
            name="azure",
            title="Azure LLM inference",
            kinds=(CSV,),
            required=keys("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        ),
        Format(
            name="burstgpt",
            title="BurstGPT",
            kinds=(CSV,),
            required=keys("Timestamp", "Request tokens", "Response tokens", "Total tokens"),
            honours=TIMED,
        ),
        Format(
            name="vidur",
            title="Vidur / Splitwise processed",
            kinds=(CSV,),
            required=keys("num_prefill_tokens", "num_decode_tokens"),
            honours=TIMED | RATED,
        ),
        Format(
            name="mooncake",
            title="Mooncake",
            kinds=(JSON,),
            required=keys("timestamp", "input_length", "output_length"),
            honours=TIMED | HASHED | keys("--prefix-only"),
        ),
        Format(
            name="bailian",
            title="Qwen-Bailian",
            kinds=(JSON,),
            required=keys(
                *("chat_id", "parent_chat_id", "timestamp"),
                *("input_length", "output_length", "hash_ids"),
            ),
            honours=TIMED | HASHED,
        ),
        Format(
            name="servegen",
            title="ServeGen offline",
            kinds=(JSON,),
            required=keys("request_id", "type", "input_length"),
            absent=keys("timestamp"),
            honours=HASHED | RATED | keys("--output-len"),
        ),
        Format(
            name="weka",
            title="WEKA agent sessions",
            kinds=(JSON,),
            required=keys("block_size", "hash_id_scope", "requests"),
            spread=True,
            honours=HASHED | RATED,
        ),
        Format(
            name="dynamo",
            title="Dynamo request trace",
            kinds=(JSON,),
            required=keys("event_type"),
        ),
        Format(
            name="sglang_log",
            title="SGLang request log",
            kinds=(JSON,),
            required=keys("timestamp", "event"),
        ),
        Format(
            name="sglang_metrics",
            title="SGLang metrics export",
            kinds=(JSON,),
            required=keys("request_parameters"),
            honours=RATED,
        ),
        Format(
            name="synthetic",
            title="synthetic workload",
            kinds=(YAML,),
            required=keys("requests", "arrivals", "input", "output"),
            instead={"--seed": "its seed is in the file: change 'seed' there"},
        ),
        Format(
            name="events",
            title="kvplan operations",
            kinds=(JSON, YAML),
            required=keys("kvplan", "version"),
        ),
    )
}

REFUSED: tuple[Refused, ...] = (
    Refused(
        title="a recorded state",
        kinds=(JSON,),
        required=keys("schema", "row_width", "kv", "requests"),
        reason="it holds the pools at one step: look at it with 'kvplan inspect --state'",
    ),
    Refused(
        title="a report of 'kvplan trace'",
        kinds=(JSON,),
        required=keys("schema", "verdict", "timeline"),
        reason="it has no requests: name the workload that it was made from",
    ),
    Refused(
        title="a Dynamo agentic Mooncake trace",
        kinds=(JSON,),
        required=keys("schema", "version", "hash_id_scope"),
        reason="requests that wait for each other are a different workload model",
    ),
    Refused(
        title="an applied-compute agentic trace",
        kinds=(JSON,),
        required=keys("num_turns", "input_prompt_length", "tool_call_latency"),
        reason="tool waits between turns are a different workload model",
    ),
    Refused(
        title="a Dynamo agentic Mooncake trace without its header",
        kinds=(JSON,),
        required=keys("not_before_ms", "dependencies", "input_length"),
        reason="requests that wait for each other are a different workload model",
    ),
    Refused(
        title="GitHub Copilot agent sessions",
        kinds=(JSON,),
        required=keys("session_id", "turns"),
        reason="it counts cached tokens and does not say which ones are shared",
    ),
    Refused(
        title="TraceLab",
        kinds=(JSON,),
        required=keys("round_index", "prefix_tokens", "newly_append_tokens"),
        reason="it counts cached tokens and does not say which ones are shared",
    ),
    Refused(
        title="a ShareGPT conversation file",
        kinds=(JSON,),
        required=keys("id", "conversations"),
        reason="it has texts, neither token counts nor arrival times",
    ),
)
