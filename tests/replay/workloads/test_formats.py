"""Small files of each format: what a reader makes of them, value by value."""

from __future__ import annotations

import json

import pytest

from kvplan.errors import InputError, TraceError
from tests.replay.workloads.helpers import (
    DATA,
    block_ids,
    lengths,
    opened,
    requests,
    token_ids,
)

LENGTHS: dict[str, list[tuple[float, int, int]]] = {
    "azure_2023.csv": [(0, 412, 38), (0.250001, 97, 120), (2.5, 1830, 7), (60, 655, 214)],
    "azure_2024.csv": [(0, 2100, 1), (0.99988, 340, 16), (2.49988, 77, 302)],
    "azure_2025.csv": [(0, 310, 90), (0.5, 2944, 41), (2.875, 1500, 12)],
    "burstgpt_6.csv": [(0, 472, 18), (40, 1087, 230), (113, 417, 0)],
    "burstgpt_8.csv": [(0, 30, 12), (2.5, 800, 5), (60, 95, 40)],
    "vidur.csv": [(0, 512, 64), (0.125, 33, 9), (1.000001, 2048, 1)],
    "mooncake_exact.jsonl": [(0, 1024, 40), (1.5, 1536, 8), (3, 512, 300)],
    "mooncake_partial.jsonl": [(0, 1030, 40), (3, 1500, 8), (3, 90, 0)],
    "mooncake_prefix.jsonl": [(0, 1700, 40), (0.25, 5200, 8), (0.9, 90, 11)],
    "mooncake_turns.jsonl": [(0, 600, 50), (0, 680, 70), (0.04, 700, 20)],
    "bailian.jsonl": [(0, 40, 25), (0.75, 32, 4), (61.5, 81, 19), (90.25, 120, 6)],
    "dynamo.jsonl": [(0, 40, 3), (0.1, 48, 12)],
    "weka.json": [(0, 200, 30), (12.5, 300, 0), (20.5, 64, 11), (22, 350, 44), (24, 140, 12)],
    "sglang_requests.log": [(0, 18, 4), (0.05, 210, 31), (0.3, 3, 2)],
    "sglang_metrics.log": [(0, 900, 128), (1.250000128, 4, 20)],
}


@pytest.mark.parametrize("name", LENGTHS)
def test_times_and_lengths_are_read_exactly(name):
    assert lengths(requests(DATA / name)) == LENGTHS[name]


@pytest.mark.parametrize("name", LENGTHS)
def test_rows_read_are_kept_or_dropped_with_a_reason(name):
    tally = opened(DATA / name).tally

    assert tally.kept == len(LENGTHS[name])
    assert tally.read == tally.kept + sum(tally.dropped.values())


def test_failed_requests_are_dropped_and_prefill_only_ones_kept():
    tally = opened(DATA / "burstgpt_6.csv").tally

    assert dict(tally.dropped) == {"input of 0 tokens": 1}
    assert dict(tally.flagged) == {"no answer: prefill only": 1}


def test_a_session_is_carried_along_and_implies_no_shared_tokens():
    found = requests(DATA / "burstgpt_8.csv")

    assert [request.session for request in found] == ["aa11", None, "aa11"]
    assert {request.identity for request in found} == {None}


def test_lengths_without_arrivals_need_a_rate():
    path = DATA / "vidur_lengths.csv"

    with pytest.raises(TraceError, match=r"vidur_lengths.csv:1: no arrival times") as caught:
        opened(path)

    assert "--request-rate" in (caught.value.hint or "")
    assert lengths(requests(path, request_rate=float("inf"))) == [(0, 512, 64), (0, 33, 9)]


def test_a_rate_for_a_file_with_arrivals_is_refused():
    with pytest.raises(TraceError, match="has arrival times of its own"):
        opened(DATA / "vidur.csv", request_rate=1.0)


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("mooncake_exact.jsonl", [(0, 1), (0, 1, 2), (3,)]),
        ("mooncake_partial.jsonl", [(0, 1, 2), (0, 1, 3), (4,)]),
        ("bailian.jsonl", [(1, 2, 3), (1, 9), (1, 2, 4, 5, 6, 7), (1, 2, 4, 5, 6, 8, 10, 11)]),
        ("dynamo.jsonl", [(71, 72), (71, 72, 73)]),
    ],
)
def test_hash_ids_become_blocks(name, ids):
    assert [block_ids(request) for request in requests(DATA / name)] == ids


def test_a_prefix_only_file_leaves_the_rest_to_nobody():
    workload = opened(DATA / "mooncake_prefix.jsonl")
    first, second, third = workload

    assert (block_ids(first), block_ids(second), third.identity) == ((0, 1), (0, 1, 2), None)
    assert workload.notes == ("rows that hash only a prefix, the rest shared with nobody: 2",)


def test_turns_hold_what_was_said_before_and_share_hashed_blocks_with_other_sessions():
    red, red_again, blue = requests(DATA / "mooncake_turns.jsonl")
    said = token_ids(red).prompt + token_ids(red).output

    assert token_ids(red_again).prompt[:650] == said
    assert len(token_ids(red_again).prompt) == 680
    assert token_ids(red).prompt[:512] == token_ids(blue).prompt[:512]
    assert not set(token_ids(red).prompt[512:]) & set(token_ids(blue).prompt[512:])
    assert (red.delay_ns, red_again.delay_ns, red_again.session) == (None, 800_000_000, "red")


def test_a_chat_belongs_to_the_root_of_its_tree():
    assert [request.session for request in requests(DATA / "bailian.jsonl")] == [
        "10",
        "7",  # its parent lies outside the trace
        "10",
        "10",
    ]


def test_several_sessions_need_a_rate_at_which_they_start():
    with pytest.raises(TraceError, match=r"weka.jsonl:2: several sessions") as caught:
        opened(DATA / "weka.jsonl")

    assert "--request-rate" in (caught.value.hint or "")


def test_ids_of_different_sessions_are_not_the_same_blocks():
    found = requests(DATA / "weka.jsonl", request_rate=float("inf"))

    assert [request.rid for request in found] == ["one/0@1", "two/0@2", "one/1@1"]
    assert {request.identity.namespace for request in found} == {"one", "two"}  # type: ignore[union-attr]


def test_a_folder_of_sessions_is_one_workload(tmp_path):
    document = (DATA / "weka.json").read_text()
    for name in ("b.json", "a.json"):
        (tmp_path / name).write_text(document.replace("session-one", name[0]))

    workload = opened(tmp_path, request_rate=float("inf"))

    assert workload.detected.format == "weka"
    assert [request.session for request in workload if request.t_ns == 0] == ["a", "b"]
    assert len(workload) == 10


def test_times_of_a_sub_agent_may_count_from_the_session(tmp_path):
    text = (DATA / "weka.json").read_text().replace('"t": 0.5', '"t": 20.5')
    (tmp_path / "w.json").write_text(text.replace('"t": 4.0', '"t": 24.0'))

    workload = opened(tmp_path / "w.json")

    assert lengths(list(workload)) == LENGTHS["weka.json"]
    assert workload.notes == ("times of sub-agents count from the start of the session",)


def test_only_the_ends_of_requests_count_in_a_request_trace():
    assert dict(opened(DATA / "dynamo.jsonl").tally.dropped) == {"not a request_end event": 1}


def test_agents_that_appear_later_in_a_request_trace_are_refused(tmp_path):
    agent = '{"event_type": "request_end", "agent_context": {"session_id": "s"}}\n'
    path = tmp_path / "d.jsonl"
    path.write_text((DATA / "dynamo.jsonl").read_text() + agent)

    with pytest.raises(TraceError, match=r"d.jsonl:4: recognised but not supported"):
        opened(path, skip_bad_rows=True)


def test_a_request_log_joins_received_and_finished_lines():
    workload = opened(DATA / "sglang_requests.log")
    by_rid = {request.rid: request for request in workload}

    assert {rid: request.max_new for rid, request in by_rid.items()} == {
        "z@6": None,
        "a@5": 64,
        "b@4": 8,
    }
    assert token_ids(by_rid["b@4"]).prompt == (5, 6, 7)
    assert token_ids(by_rid["b@4"]).output == (8, 9)
    assert dict(workload.tally.dropped) == {
        "another log line": 1,
        "health check": 1,
        "no token counts (aborted, or an embedding)": 1,
        "never finished": 1,
    }


@pytest.mark.parametrize("name", ["sglang_requests.log", "sglang_metrics.log"])
@pytest.mark.parametrize(("value", "count"), [("true", 1), ("false", 0), ("null", 0)])
def test_requests_that_ignore_eos_are_counted(tmp_path, name, value, count):
    path = tmp_path / "w.log"
    quote = '\\"' if "metrics" in name else '"'
    asked = f"{quote}max_new_tokens{quote}: {256 if 'metrics' in name else 64}"
    given = (DATA / name).read_text()
    assert asked in given
    path.write_text(given.replace(asked, f"{asked}, {quote}ignore_eos{quote}: {value}"))

    flagged = opened(path).tally.flagged

    assert flagged["ignores eos, which is not modelled: read as any other"] == count


def test_a_metrics_export_tells_what_the_client_asked_for():
    late, early = requests(DATA / "sglang_metrics.log")[::-1]

    assert (early.max_new, late.max_new, late.rid) == (None, 256, "m1@1")
    assert token_ids(late).prompt == (3, 1, 4, 1)


def test_a_metrics_export_without_arrivals_says_how_to_get_them(tmp_path):
    path = tmp_path / "m.log"
    path.write_text(
        (DATA / "sglang_metrics.log").read_text().replace("request_received_ts", "other")
    )

    with pytest.raises(TraceError, match=r"m.log:1: the key 'request_received_ts'") as caught:
        opened(path)

    assert "--enable-metrics" in (caught.value.hint or "")
    assert len(opened(path, request_rate=1.0)) == 2


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("servegen_a.jsonl", ["--request-rate", "--output-len"]),
        ("servegen_d.jsonl", ["--request-rate"]),
    ],
)
def test_a_batch_trace_names_the_flags_that_it_needs(name, needed):
    with pytest.raises(TraceError) as caught:
        opened(DATA / name)

    hint = caught.value.hint or ""
    assert [flag for flag in ("--request-rate", "--output-len") if flag in hint] == needed


def test_an_answer_length_for_a_file_with_answers_is_refused():
    with pytest.raises(TraceError, match="has answer lengths of its own"):
        opened(DATA / "servegen_d.jsonl", request_rate=1.0, output_len=5)


def test_a_time_unit_rescales_a_trace_without_one_of_its_own():
    seconds = requests(DATA / "mooncake_exact.jsonl", time_unit="s")

    assert [request.t_ns for request in seconds] == [0, 1500 * 10**9, 3000 * 10**9]


@pytest.mark.parametrize("output_len", [-1, 1 << 31, 10**12])
def test_an_answer_length_that_no_request_has_is_refused_by_its_flag(output_len):
    with pytest.raises(InputError, match=f"--output-len {output_len} is no number of tokens"):
        opened(DATA / "servegen_a.jsonl", request_rate=1.0, output_len=output_len)


def test_a_log_whose_lines_were_written_anew_without_blanks_is_read_alike(tmp_path):
    path = tmp_path / "w.log"
    given = (DATA / "sglang_requests.log").read_text().splitlines()
    compact = [
        line[: line.find("{")]
        + json.dumps(json.loads(line[line.find("{") :]), separators=(",", ":"))
        if "{" in line
        else line
        for line in given
    ]
    path.write_text("\n".join(compact))

    assert requests(path) == requests(DATA / "sglang_requests.log")
