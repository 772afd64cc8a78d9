"""Start-up logs read back to the figures that they print, whatever version, rank or terminal wrote them."""

from __future__ import annotations

import json
import os
import threading
import time

import pytest

from kvplan.errors import InputError
from kvplan.guard import server_log
from kvplan.guard.log_arguments import sizing_arguments
from kvplan.guard.server_log import parse_log, read_log
from tests.guard.log_writer import STYLES, published
from tests.guard.samples import TWO_RANKS


@pytest.mark.parametrize("style", STYLES)
def test_published_figures_read_back(shared, style):
    write, rank = STYLES[style]
    lines = (shared / "facts" / "logs.jsonl").read_text().splitlines()
    records = [record for record in map(json.loads, lines) if record["engine"] == "sglang"]
    read = 0

    for record in records:
        figures = published(record)
        written: set[str] = set()
        text = write(figures, written)
        if len(written) < 3:
            continue
        log = parse_log(text, "server.log")
        found = {name: log.get(name) for name in written}
        read += 1

        assert {name: figure and figure.value for name, figure in found.items()} == {
            name: figures[name] for name in written
        }, record["id"]
        assert {figure and figure.rank for figure in found.values()} == {rank}
        assert not any(figure and figure.draft for figure in found.values())

    assert read > 50


def test_ranks_and_the_draft_are_told_apart():
    log = parse_log(TWO_RANKS, "server.log")
    least = log.least("avail_after_load_gib")

    assert log.ranks == ("TP1", "TP0")
    assert least is not None
    assert (least.value, log.where(least)) == (120.05, "server.log:6")
    assert log.value("avail_after_load_gib", draft=True) == 118.0
    assert log.value("weights_gib", draft=True) == 2.1
    assert (log.value("k_gib"), log.value("k_gib", draft=True)) == (3.46, 1.08)
    assert log.value("avail_after_pool_gib", draft=True) == 6.23
    assert [(each.value, each.line) for each in log.all("graph")] == [
        ("target verify CUDA", 13),
        ("draft cuda", 14),
    ]
    assert [each.value for each in log.all("graph_gib")] == [0.58, 0.22]
    assert log.value("max_running_requests") == 48
    assert log.get("nothing") is None
    assert log.least("nothing") is None


def test_the_printed_digits_give_the_rounding():
    log = parse_log(TWO_RANKS, "server.log")

    assert [figure.rounding for figure in log.all("k_gib")] == [0.005]
    assert [figure.rounding for figure in log.all("num_tokens")] == [0.0]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["#tokens: 300, K size: 8.00 GB, V size: 5.00 GB", "#tokens: 400, K size: 1.00 GB, V size: 0.50 GB"], (8.0, 1.0)),
        (["#tokens: 400, K size: 1.00 GB, V size: 0.50 GB", "#tokens: 300, K size: 8.00 GB, V size: 5.00 GB"], (8.0, 1.0)),
    ],
)  # fmt: skip
def test_sliding_pools_are_told_apart_by_their_tokens(lines, expected):
    text = "".join(f"KV Cache is allocated. {line}\n" for line in lines)
    text += "SWAKVPool mem usage: 14.50 GB, swa size: 300, full size: 400\n"

    log = parse_log(text, "server.log")

    assert (log.value("swa_k_gib"), log.value("full_k_gib")) == expected
    assert log.get("k_gib") is None


def test_equal_sliding_pools_follow_the_order_of_the_versions_without_labels():
    text = (
        "KV Cache is allocated. #tokens: 9, K size: 41.76 GB, V size: 27.84 GB\n"
        "KV Cache is allocated. #tokens: 9, K size: 4.82 GB, V size: 3.21 GB\n"
        "SWAKVPool mem usage: 77.63 GB, swa size: 9, full size: 9\n"
    )

    log = parse_log(text, "server.log")

    assert (log.value("swa_v_gib"), log.value("full_v_gib")) == (27.84, 3.21)


@pytest.mark.parametrize(
    ("line", "figures"),
    [
        ("Load weight end. quant=fp8, fmt=e4m3, avail mem=12.25 GB, mem usage=125.65 GB.", {"avail_after_load_gib": 12.25, "weights_gib": 125.65}),
        ("Load weight end. dtype=torch.bfloat16, avail mem=-3.05 GB", {"weights_dtype": "torch.bfloat16", "avail_after_load_gib": -3.05}),
        ("KV Cache is allocated. K size: 27.13 GB, V size: 27.13 GB.", {"k_gib": 27.13, "v_gib": 27.13}),
        ("KV Cache is allocated. dtype: torch.uint8, #tokens: 64, KV size: 54.52 GB", {"kv_dtype": "torch.uint8", "num_tokens": 64, "kv_gib": 54.52}),
        ("Capture cuda graph end. Time elapsed: 5.97 s", {"graph": "cuda"}),
        ("Capture npu graph end. Time elapsed: 5.97 s. mem usage=0.73 GB. avail mem=0.81 GB.", {"graph": "npu", "graph_gib": 0.73, "avail_after_graph_gib": 0.81}),
        ("Memory baseline taken. mem usage=0.19 GB", {"baseline_used_gib": 0.19}),
        ("Use sliding window memory pool (all SWA). swa_layer_tokens=77", {"swa_layer_tokens": 77}),
        ("Allocating 16.00 GB host memory for hierarchical KV cache.", {"host_gb": 16.0}),
        ("Allocating 2.50 GB host memory for hierarchical Mamba cache (12 state slots, layout=page_first).", {"host_state_gb": 2.5, "host_state_slots": 12}),
        ("Sync fixed-size HiCache host token capacity from 128 to 64.", {"synced_host_tokens": 64}),
        ("Reserving 0.10 GB of the KV budget for post-sizing multimodal allocations", {"multimodal_reserve_gib": 0.1}),
    ],
)  # fmt: skip
def test_each_wording_gives_its_figures(line, figures):
    log = parse_log(line, "server.log")

    assert {each.name: each.value for each in log.figures} == figures


def test_compressed_pools_of_two_wordings():
    text = (
        "DSV4 pool sizes: full=1641472, swa=164096, c4=410368, c128=12824, c4_state=10256, c128_state=0\n"
        "Initialize DeepSeekV4TokenToKVPool with max_num_reqs=256 swa_size=423424 c4_size=132352 "
        "c128_size=4136 c4_state_pool_size=52928 c128_state_pool_size=846848\n"
    )

    log = parse_log(text, "server.log")

    assert [each.value for each in log.all("compressed_swa")] == [164096, 423424]
    assert [each.value for each in log.all("c128_state")] == [0, 846848]


@pytest.mark.parametrize(
    ("message", "kind", "figures"),
    [
        (
            "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.85. "
            "Raise --mem-fraction-static above 0.912 (minimum viable = 1 - available/pre = 0.9113).",
            "weights_leave_nothing",
            {"mem_fraction_static": 0.85, "suggested_mem_fraction": 0.912, "minimum_mem_fraction": 0.9113},
        ),
        (
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: mem_fraction_static=0.7",
            "pool_too_small",
            {"mem_fraction_static": 0.7},
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.11 GiB",
            "out_of_memory",
            {"tried_gib": 2.5},
        ),
        (
            "max_running_requests is capped to 2 by the mamba state cache (max_mamba_cache_size=10, 5 state slots per request).",
            "capped_by_state",
            {"capped_requests": 2, "state_slots_per_request": 5},
        ),
        (
            "max_running_requests was reduced from the requested 64 to 32 (per dp worker)",
            "requests_reduced",
            {"requested_requests": 64, "reduced_requests": 32},
        ),
        (
            "max_total_tokens=3000000 is larger than the profiled value 2999808. Use the profiled value instead.",
            "user_limit_too_large",
            {"asked_tokens": 3_000_000, "profiled_tokens": 2_999_808},
        ),
        (
            "The memory capacity is unbalanced. Some GPUs may be occupied by other processes.",
            "unbalanced_memory",
            {},
        ),
    ],
)  # fmt: skip
def test_remarks_and_failures_are_events(message, kind, figures):
    log = parse_log(f"[2026-01-02 03:04:05 TP0] {message}\n", "server.log")

    assert [(each.kind, each.line, each.rank) for each in log.events] == [(kind, 1, "TP0")]
    assert {each.name: each.value for each in log.figures} == figures


@pytest.mark.parametrize(
    "printed",
    [
        "ServerArgs(model_path='org/m, (x)', tp_size=8, mem_fraction_static=0.88, cuda_graph_max_bs=160, "
        "cuda_graph_config=CudaGraphConfig(decode=Phase(bs=[1, 2])), lora_paths=None, disable_radix_cache=True, gone=1)",
        "{'model_path': 'org/m, (x)', 'tp_size': 8, 'mem_fraction_static': 0.88, 'cuda_graph_max_bs_decode': 160, "
        "'backend': <Backend.FULL: 'full'>, 'disable_radix_cache': True}",
    ],
)  # fmt: skip
def test_the_printed_server_arguments_are_read(printed):
    text = f"[2026-01-02 03:04:05] server_args={printed}\nMemory pool end. avail mem=1.00 GB\n"

    log = parse_log(text, "server.log")

    assert log.arguments["model_path"] == "org/m, (x)"
    assert sizing_arguments(log.arguments) == {
        "model_path": "org/m, (x)",
        "tp_size": 8,
        "mem_fraction_static": 0.88,
        "cuda_graph_max_bs_decode": 160,
        "disable_radix_cache": True,
    }


def test_of_several_starts_the_last_counts():
    first = (
        "server_args=ServerArgs(model_path='a')\nmax_total_num_tokens=111, max_running_requests=1\n"
    )
    last = (
        "server_args=ServerArgs(model_path='b')\nmax_total_num_tokens=222, max_running_requests=2\n"
    )

    log = parse_log(first + last, "server.log")

    assert (log.starts, log.arguments["model_path"]) == (2, "b")
    assert [each.value for each in log.all("max_total_num_tokens")] == [222]


@pytest.mark.parametrize("content", [b"", b"INFO: nothing of the kind\n", b"\xff\xfe\x01\n"])
def test_a_file_without_a_start_up_is_refused(tmp_path, content):
    path = tmp_path / "server.log"
    path.write_bytes(content)

    with pytest.raises(InputError, match="no line of an SGLang start-up"):
        read_log(path)


def test_a_binary_file_and_a_missing_one_are_refused(tmp_path):
    path = tmp_path / "core"
    path.write_bytes(b"\x7fELF\0\0\0\n" * 10)

    with pytest.raises(InputError, match="NUL"):
        read_log(path)
    with pytest.raises(InputError, match="no such file"):
        read_log(tmp_path / "none.log")


def test_a_log_may_come_through_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(TWO_RANKS,))
    writer.start()

    log = read_log(pipe)
    writer.join()

    assert log.value("max_total_num_tokens") == 454112
    assert not log.truncated


def test_what_lies_beyond_the_limit_is_told(tmp_path, monkeypatch):
    path = tmp_path / "server.log"
    path.write_text(TWO_RANKS + "x\n" * 9)
    monkeypatch.setattr(server_log, "MAX_BYTES", len(TWO_RANKS))

    assert read_log(path).truncated


def test_a_long_log_is_read_quickly(tmp_path):
    path = tmp_path / "server.log"
    decode = "[2025-10-16 09:07:00 TP0] Decode batch. #running-req: 12, #token: 4242, token usage: 0.01, gen throughput (token/s): 100.00\n"
    path.write_text(TWO_RANKS + decode * 200_000 + "x" * 1_000_000 + "\n")
    started = time.process_time()

    log = read_log(path)

    assert log.value("max_total_num_tokens") == 454112
    assert not log.truncated
    assert time.process_time() - started < 5
