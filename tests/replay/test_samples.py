"""Real traces through both engines: the same figures, nothing violated, the rest refused."""

from __future__ import annotations

import json

import pytest

# sample -> requests of it that the ordinary run replays; the nightly one takes them all
REPLAYABLE = {
    "azure2023_conv.csv": 150,
    "azure2024_code_head_tail.csv": None,
    "azure2024_conv_head_tail.csv": None,
    "azure2025_lmm_head_tail.csv": None,
    "burstgpt_3_first4.csv": None,
    "mooncake_arxiv_head16.jsonl": None,
    "mooncake_conversation_trace.jsonl": 60,
    "vidur_splitwise_code.csv": 200,
    "formats/dynamo_mooncake.jsonl": None,
    "formats/dynamo_mooncake-delta.jsonl": None,
    "formats/dynamo_dynamo-standard.jsonl": None,
}
REFUSED = {
    "burstgpt_3_head_converted.jsonl": "known formats: azure",
    "servegen_offline_trace_a_head.jsonl": "--request-rate",
    "formats/dynamo_dynamo-agentic.jsonl": "recognised but not supported",
    "formats/dynamo_agentic-mooncake.jsonl": "recognised but not supported",
    "formats/dynamo_applied-compute-agentic.jsonl": "recognised but not supported",
    "formats/aiperf_mooncake_template.jsonl": "aiperf_mooncake_template.jsonl:",
}
LAUNCH = ("trace", "llama-3.1-8b", "--gpu", "h100", "--max-running-requests", "256")
POOLS = ("--page-size", "16", "--device", "cpu", "--kv-scale", "--stamp")
SHORT = ("--max-total-tokens", "40000", "--schedule-conservativeness", "0.3")


def replayed(kvplan, *argv):
    code, out, err = kvplan(*LAUNCH, *argv, "--json")
    assert code in (0, 1), err
    return json.loads(out)


def assert_all_hold(report):
    assert [each["state"] for each in report["verification"]] == ["held"] * 6
    assert report["violation"] is None
    requests = report["requests"]
    assert requests["finished"] + requests["rejected"] == requests["arrived"] > 0


@pytest.mark.parametrize("sample", REPLAYABLE)
def test_a_sample_runs_to_its_end_on_both_engines(kvplan, shared, sample):
    """Predicted (accounting) and measured (pools) figures are compared by the replay itself."""
    limit = REPLAYABLE[sample]
    cut = () if limit is None else ("--limit", str(limit))

    assert_all_hold(replayed(kvplan, *POOLS, "--workload", shared / "facts/traces" / sample, *cut))


@pytest.mark.parametrize("sample", ["azure2023_conv.csv", "mooncake_conversation_trace.jsonl"])
def test_a_pool_that_is_too_small_for_a_sample_shows_it_on_both_engines(kvplan, shared, sample):
    """Clients that ask for much and get little: admission is bold, decode runs short."""
    file = shared / "facts/traces" / sample
    flags = ("--workload", file, "--limit", str(REPLAYABLE[sample]), *SHORT, "--tpot", "60")
    counted = replayed(kvplan, "--page-size", "16", *flags)
    pooled = replayed(kvplan, *POOLS, *flags)

    assert_all_hold(pooled)
    assert not counted["verdict"]["fits"]
    assert counted["requests"]["retractions"] + counted["requests"]["rejected"] > 0
    assert agreed(counted) == agreed(pooled)


def agreed(report):
    """Peaks, retractions, rejections, hits, evictions."""
    peaks = {pool["name"]: pool["peak"] for pool in report["pools"]}
    return peaks, report["requests"], report["prefix"]


@pytest.mark.nightly
@pytest.mark.parametrize("sample", [name for name, limit in REPLAYABLE.items() if limit])
def test_a_whole_sample_runs_to_its_end_on_both_engines(kvplan, shared, sample):
    assert_all_hold(replayed(kvplan, *POOLS, "--workload", shared / "facts/traces" / sample))


@pytest.mark.parametrize("sample", [name for name, limit in REPLAYABLE.items() if limit])
def test_a_whole_sample_runs_to_its_end_over_counts(kvplan, shared, sample):
    report = replayed(kvplan, "--workload", shared / "facts/traces" / sample)

    requests = report["requests"]
    assert requests["finished"] + requests["rejected"] == requests["arrived"] > 8000


@pytest.mark.parametrize("sample", REFUSED)
def test_what_cannot_be_replayed_is_refused_with_its_reason(kvplan, shared, sample, tmp_path):
    written = tmp_path / "report.json"
    code, out, err = kvplan(
        *LAUNCH, "--workload", shared / "facts/traces" / sample, "--output", written
    )

    assert code == 2
    assert out == ""
    assert REFUSED[sample] in err
    assert not written.exists()


def test_a_sample_without_arrivals_replays_once_they_are_given(kvplan, shared):
    file = shared / "facts/traces/servegen_offline_trace_a_head.jsonl"
    flags = ("--request-rate", "inf", "--output-len", "128")

    assert_all_hold(replayed(kvplan, *POOLS, "--workload", file, *flags))
