"""SGLang's metrics export: one line a finished request, with what the client asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from kvplan.replay.workloads.clock import SECOND, number_ns
from kvplan.replay.workloads.jsonrows import json_rows, undecoded
from kvplan.replay.workloads.options import ReadOptions
from kvplan.replay.workloads.rows import BadRow, Row, token_count
from kvplan.replay.workloads.stream import Source
from kvplan.replay.workloads.supplied import supplied_arrivals
from kvplan.replay.workloads.tally import Tally
from kvplan.replay.workloads.tokens import IGNORES_EOS, LEFT_OUT, Parameters, token_identity


class MetricsRow(msgspec.Struct, frozen=True):
    request_parameters: str
    id: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    request_received_ts: int | float | None = None


def read(source: Source, tally: Tally, options: ReadOptions) -> Iterator[Row]:
    """Rows in the order in which the requests finished."""
    times = supplied_arrivals(options, "") if options.request_rate is not None else None
    decode = msgspec.json.Decoder(Parameters).decode

    def parse(line: int, row: MetricsRow) -> Row | None:
        if row.prompt_tokens is None or row.completion_tokens is None:
            tally.dropped["no token counts (aborted, or an embedding)"] += 1
            return None
        text = row.request_parameters.encode(errors="replace")
        try:
            asked = decode(text)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise undecoded(error, text) from None
        input_len = token_count(row.prompt_tokens, "prompt_tokens")
        output_len = token_count(row.completion_tokens, "completion_tokens")
        if asked.ignores_eos:
            tally.flagged[IGNORES_EOS] += 1
        return Row(
            arrival(row) if times is None else next(times),
            input_len,
            output_len,
            line,
            row.id or "",
            asked.max_new,
            asked.session_id,
            token_identity(asked.input_ids, input_len, LEFT_OUT, 0),
        )

    return json_rows(source, tally, MetricsRow, parse, "sglang_metrics")


def arrival(row: MetricsRow) -> int:
    if row.request_received_ts is None:
        raise BadRow(
            "the key 'request_received_ts' is missing",
            hint="the server writes it with --enable-metrics; --request-rate supplies arrivals",
        )
    return number_ns(row.request_received_ts, SECOND, "request_received_ts")


def layout(keys: Sequence[str], sample: Any) -> str:
    del sample
    if "request_received_ts" in keys:
        return "with arrival times"
    return "without arrival times: the server ran without --enable-metrics"
