"""Public traces: the replayable ones are read to their end, the others refused with their reason."""

from __future__ import annotations

import json

import pytest

from kvplan.errors import TraceError
from kvplan.replay.keys import BlockKey, key_of
from kvplan.replay.workloads.options import ReadOptions
from kvplan.replay.workloads.summary import summarize
from kvplan.replay.workloads.workload import Workload, open_workload
from tests.replay.workloads.helpers import SUPPLIED, block_ids, opened, requests, token_ids

REPLAYABLE = {
    "azure2023_conv.csv": (19_366, "azure"),
    "azure2024_code_head_tail.csv": (10, "azure"),
    "azure2024_conv_head_tail.csv": (10, "azure"),
    "azure2025_lmm_head_tail.csv": (10, "azure"),
    "burstgpt_3_first4.csv": (4, "burstgpt"),
    "mooncake_conversation_trace.jsonl": (12_031, "mooncake"),
    "mooncake_arxiv_head16.jsonl": (16, "mooncake"),
    "vidur_splitwise_code.csv": (8_819, "vidur"),
    "formats/dynamo_mooncake.jsonl": (2, "mooncake"),
    "formats/dynamo_mooncake-delta.jsonl": (2, "mooncake"),
    "formats/dynamo_dynamo-standard.jsonl": (2, "dynamo"),
}
REFUSED = {
    "burstgpt_3_head_converted.jsonl": (
        "1: not a workload format",
        "known formats: azure, burstgpt",
    ),
    "servegen_offline_trace_a_head.jsonl": (
        "1: a ServeGen offline trace has neither arrival times nor answer lengths",
        "--request-rate R (per second, inf: all at time 0) and --output-len N",
    ),
    "formats/dynamo_dynamo-agentic.jsonl": ("1: recognised but not supported", "agent_context"),
    "formats/dynamo_agentic-mooncake.jsonl": ("1: recognised but not supported", ""),
    "formats/dynamo_applied-compute-agentic.jsonl": ("1: recognised but not supported", ""),
    "formats/aiperf_mooncake_template.jsonl": (
        "3: 3 hash ids do not fit an input of 1024 tokens in blocks of 512; "
        "a block size that fits: 342 to 511",
        "--skip-bad-rows",
    ),
}


@pytest.mark.parametrize("name", REPLAYABLE)
def test_a_replayable_sample_is_read_to_its_end(shared, name):
    kept, format = REPLAYABLE[name]

    workload = open_workload(shared / "facts/traces" / name)
    times = [request.t_ns for request in workload]

    assert (len(times), len(workload), workload.detected.format) == (kept, kept, format)
    assert workload.tally.reconciles
    assert times == sorted(times)
    assert times[0] == 0


@pytest.mark.parametrize("name", REFUSED)
def test_any_other_sample_is_refused_with_its_reason(shared, name):
    problem, hint = REFUSED[name]

    with pytest.raises(TraceError) as caught:
        open_workload(shared / "facts/traces" / name)

    assert f"{name}:{problem}" in str(caught.value)
    assert hint in (caught.value.hint or "")


def test_every_sample_is_either_read_or_refused(shared):
    folder = shared / "facts/traces"
    names = {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.suffix in {".csv", ".jsonl"}
    }

    assert names == REPLAYABLE.keys() | REFUSED.keys()


def test_a_batch_trace_replays_with_arrivals_and_answers_supplied(shared):
    path = shared / "facts/traces/servegen_offline_trace_a_head.jsonl"

    summary = summarize(open_workload(path, options=SUPPLIED))

    assert (summary.kept, summary.span_s, summary.output.p50) == (93, 0, 128)
    assert summary.input.mean == pytest.approx(333, abs=0.5)


def test_a_batch_trace_repeats_its_leading_tokens_as_often_as_published(shared):
    path = shared / "facts/traces/servegen_offline_trace_a_head.jsonl"

    hits = infinite_cache(open_workload(path, options=SUPPLIED))

    assert hits["tokens"] == pytest.approx(0.475, abs=0.001)


def test_hash_counts_that_fit_another_block_size_name_it(shared):
    small = shared / "facts/traces/formats/dynamo_mooncake.jsonl"
    large = shared / "facts/traces/mooncake_conversation_trace.jsonl"

    with pytest.raises(TraceError, match=r"1: no row's hash ids cover .* fit blocks of 32"):
        opened(small, block_size=16)
    with pytest.raises(
        TraceError, match=r"1: no row's hash ids cover .* fit blocks of 512"
    ) as caught:
        opened(large, block_size=16)

    assert caught.value.hint == ("--block-size 512, or --prefix-only if only prefixes are hashed")


def test_rows_that_fit_no_layout_can_be_skipped(shared):
    workload = opened(
        shared / "facts/traces/formats/aiperf_mooncake_template.jsonl", skip_bad_rows=True
    )

    assert workload.tally.describe() == "10 read, 9 kept, 1 dropped (hash count does not fit)"


def test_the_turns_of_a_session_build_on_each_other(shared):
    first, second = requests(shared / "facts/traces/formats/dynamo_mooncake-delta.jsonl")

    assert (first.input_len, second.input_len) == (16, 16 + 4 + 8)
    assert second.delay_ns == 5_000_000
    assert token_ids(second).prompt[:20] == token_ids(first).prompt + token_ids(first).output


# (file, span s, input mean / p50 / p95 / p99 / max, output mean / p50 / p95 / p99 / max, max of both, peak in a second)
PUBLISHED = [
    (
        "azure2023_conv.csv",
        3_501.722,
        (1_154.7, 1_020, 4_083, 4_142, 14_050),
        (211.13, 129, 451, 601, 1_000),
        14_089,
        16,
    ),
    (
        "vidur_splitwise_code.csv",
        3_435.948,
        (2_047.8, 1_469, 7_302, 7_436, 7_437),
        (27.88, 13, 90, 252, 1_899),
        7_841,
        67,
    ),
    (
        "mooncake_conversation_trace.jsonl",
        3_536.999,
        (12_035, 6_909, 39_552, 85_401, 126_195),
        (343, 350, 698, 1_120, 2_000),
        126_527,
        28,
    ),
]


@pytest.mark.parametrize(("name", "span_s", "input", "output", "both", "peak"), PUBLISHED)
def test_a_summary_gives_the_published_figures(shared, name, span_s, input, output, both, peak):
    summary = summarize(open_workload(shared / "facts/traces" / name))
    found = [
        (side.mean, side.p50, side.p95, side.p99, side.max)
        for side in (summary.input, summary.output)
    ]

    assert summary.span_s == pytest.approx(span_s, abs=0.001)
    assert found[0] == pytest.approx(input, rel=2e-3)
    assert found[1] == pytest.approx(output, rel=2e-3)
    assert (summary.max_total, summary.peak_rps) == (both, peak)
    assert (summary.inversions, summary.flagged, summary.dropped) == (0, {}, {})


def test_conversation_blocks_give_the_published_hit_rates(shared):
    hits = infinite_cache(open_workload(shared / "facts/traces/mooncake_conversation_trace.jsonl"))

    assert hits["tokens"] == pytest.approx(0.373624, abs=1e-6)
    assert hits["blocks"] == pytest.approx(0.3664, abs=5e-5)
    assert (hits["rows_hit"], hits["rows_whole"]) == (12_030, 118)
    assert (hits["num_blocks"], hits["num_unique"]) == (288_500, 182_790)


def test_every_conversation_row_hashes_its_whole_input(shared):
    for request in open_workload(shared / "facts/traces/mooncake_conversation_trace.jsonl"):
        assert len(block_ids(request)) == -(-request.input_len // 512)


def test_real_lengths_in_the_eight_column_layout_keep_their_statistics(shared, tmp_path):
    rows = [
        json.loads(line)
        for line in (shared / "facts/traces/burstgpt_3_head_converted.jsonl")
        .read_text()
        .splitlines()
    ]
    path = tmp_path / "burst.csv"
    path.write_text(
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        + "".join(
            f"{19440110 + row['arrival_ms'] / 1000},{row['session_id']},1,GPT-4,{row['input_length']},"
            f"{row['output_length']},{row['input_length'] + row['output_length']},Conversation log\n"
            for row in rows
        )
    )

    workload = open_workload(path)
    summary = summarize(workload)
    sessions = [request.session for request in workload]

    assert (len(sessions), len(set(sessions))) == (105, 37)
    assert max(sessions.count(session) for session in set(sessions)) == 24
    assert summary.span_s == pytest.approx(32_700, abs=100)
    assert (summary.input.mean, summary.input.p50, summary.input.p95) == pytest.approx(
        (1_180, 384, 5_805), rel=0.03
    )
    assert (summary.output.mean, summary.output.p50, summary.output.p95) == pytest.approx(
        (201, 98, 645), rel=0.03
    )


def infinite_cache(workload: Workload) -> dict[str, float]:
    """What a cache that never forgets hits, by leading runs of blocks; partial blocks by their length."""
    seen: set[object] = set()
    hit_tokens = tokens = hit_blocks = rows_hit = rows_whole = 0
    ids: list[int] = []
    for request in workload:
        key = key_of(request)
        assert isinstance(key, BlockKey)
        run = next(
            (index for index, unit in enumerate(key.units) if unit not in seen), len(key.units)
        )
        hit = min(run * key.block_size, request.input_len)
        hit_tokens, tokens, hit_blocks = (
            hit_tokens + hit,
            tokens + request.input_len,
            hit_blocks + run,
        )
        rows_hit, rows_whole = rows_hit + (run > 0), rows_whole + (run == len(key.units))
        seen.update(key.units)
        ids += block_ids(request)
    return {
        "tokens": hit_tokens / tokens,
        "blocks": hit_blocks / len(ids),
        "rows_hit": rows_hit,
        "rows_whole": rows_whole,
        "num_blocks": len(ids),
        "num_unique": len(set(ids)),
    }


def test_options_that_a_format_cannot_honour_are_refused(shared):
    with pytest.raises(TraceError, match="--block-size has no meaning for Azure"):
        open_workload(
            shared / "facts/traces/azure2023_conv.csv", options=ReadOptions(block_size=16)
        )
