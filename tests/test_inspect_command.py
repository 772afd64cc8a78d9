"""`kvplan inspect` through the real entry point: layout, addresses, states, pools built for real."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from tests.conftest import REPOSITORY

Run = Callable[..., tuple[int, str, str]]
STATES = REPOSITORY / "tests" / "data" / "states"
PAGED, SLIDING, HYBRID = (str(STATES / f"{name}.json") for name in ("paged", "sliding", "hybrid"))
LLAMA = ("llama-3.1-8b", "--gpu", "h100")
TINY = ("--max-total-tokens", "512", "--context-length", "1024", "--max-running-requests", "4")


@pytest.fixture
def answer(kvplan: Run) -> Callable[..., dict[str, Any]]:
    """The JSON of one command line that exits 0."""

    def ask(*argv: str) -> dict[str, Any]:
        code, out, err = kvplan("inspect", *argv, "--json")
        assert code == 0, err
        report: dict[str, Any] = json.loads(out)
        return report

    return ask


def places(report: dict[str, Any], buffer: str) -> dict[int, tuple[int, int]]:
    """Offset and length in a buffer, by layer."""
    return {
        place["layer"]: (place["offset_bytes"], place["bytes"])
        for stage in report["address"]["stages"]
        for place in stage["places"]
        if f"{place['pool']}.{place['buffer']}" == buffer
    }


def test_the_layout_has_the_ledgers_bytes(kvplan: Run, answer):
    sized = json.loads(kvplan("size", *LLAMA, "--json")[1])
    ledger = {entry["name"]: entry["bytes"] for entry in sized["ledger"]["entries"]}

    report = answer(*LLAMA)
    totals = {each["name"]: each["bytes"] for each in report["layout"][0]["totals"]}

    assert report["schema"] == "kvplan.inspect/1"
    assert totals == {name: ledger[name] for name in totals}
    assert totals["KV"] == sum(
        each["bytes"] for each in report["layout"][0]["tensors"] if each["pool"] == "kv"
    )


def test_a_token_is_found_in_every_layer(answer):
    """Position 800 of chat-7 is the 33rd of its own slots, 1472 on: 1504 x 8 heads x 128 x 2 B."""
    report = answer("--state", PAGED, "--request", "chat-7", "--position", "800")
    address = report["address"]

    assert (address["row"], address["slot"], address["page"]) == (3, 1504, 94)
    assert places(report, "kv.k") == dict.fromkeys(range(32), (1504 * 8 * 128 * 2, 2048))
    assert places(report, "kv.v") == places(report, "kv.k")
    assert places(report, "rows.req_to_token") == {None: ((3 * 2052 + 800) * 4, 4)}


def test_a_slot_is_found_in_every_row(answer):
    report = answer("--state", PAGED, "--slot", "300")

    assert report["address"]["class"] == "shared"
    assert report["address"]["holders"] == [
        {"rid": "chat-7", "row": 3, "position": 284},
        {"rid": "chat-9", "row": 2, "position": 284},
    ]


def test_both_sides_of_a_token_are_found(answer):
    """Slot 916 maps to 144 + (916 - 864); gpt-oss keeps 8 heads of 64 on either side."""
    report = answer("--state", SLIDING, "--request", "agent-1", "--position", "900")

    assert report["address"]["sliding_slot"] == 196
    assert set(places(report, "full.k")) == set(range(1, 24, 2))
    assert set(places(report, "full.k").values()) == {(916 * 8 * 64 * 2, 1024)}
    assert places(report, "sliding.v") == dict.fromkeys(range(0, 24, 2), (196 * 1024, 1024))


def test_a_token_that_left_the_window_has_no_sliding_bytes(answer):
    report = answer("--state", SLIDING, "--request", "agent-1", "--position", "100")

    assert report["address"]["left_window"]
    assert places(report, "sliding.k") == {}
    assert places(report, "full.k")[1] == (116 * 1024, 1024)


def test_the_state_of_a_token_is_found_in_every_linear_layer(answer):
    """State slot 3 of 25 rows: 8 heads of 128 x 128 float32 a layer and rank."""
    report = answer("--state", HYBRID, "--request", "doc-1", "--position", "0")
    slot = 8 * 128 * 128 * 4
    linear = [layer for layer in range(48) if layer % 4 != 3]

    assert places(report, "state.temporal") == {
        layer: ((index * 25 + 3) * slot, slot) for index, layer in enumerate(linear)
    }


@pytest.mark.parametrize(
    ("flags", "buffer", "region"),
    [
        (("deepseek-v3", "--gpu", "h200", "--tp", "8"), "kv.latent", (100 * 1152, 1152)),
        (
            ("deepseek-v3.2", "--gpu", "h200", "--tp", "8", "--kv-cache-dtype", "bf16"),
            "kv.index_key",
            (8448 + 64 * 128 + 36 * 4, 4),  # page 1: 64 keys of 128, then their scales
        ),
        (
            ("qwen3-8b", "--gpu", "b200", "--kv-cache-dtype", "mxfp8", "--page-size", "128"),
            "kv.k_scale",
            ((100 % 32 * 4 + 3) * 4, 8 * 4),
        ),
    ],
)
def test_a_slot_of_a_plan_is_found_by_hand(answer, flags, buffer, region):
    assert set(places(answer(*flags, "--slot", "100"), buffer).values()) == {region}


def test_a_state_is_shown_as_a_map(kvplan: Run):
    code, out, _ = kvplan("inspect", "--state", PAGED)

    assert code == 0
    assert out.splitlines()[0] == "kv 98 of 256 pages held"
    assert "         64 ,,,,,,,,,,,,,,,,..oooooooooo#######.##.####################....." in out
    assert "  free: 158 in 4 runs, the longest 134 (fragmentation 15.2%)" in out


@pytest.mark.parametrize(
    ("columns", "letters"), [(200, 64), (76, 64), (75, 32), (44, 32), (40, 16), (20, 8), (9, 8)]
)
def test_a_map_fits_the_terminal(
    kvplan: Run, monkeypatch: pytest.MonkeyPatch, columns: int, letters: int
):
    monkeypatch.setenv("COLUMNS", str(columns))

    out = kvplan("inspect", "--state", PAGED)[1]

    first = next(line for line in out.splitlines() if line.startswith("          0 "))
    assert len(first.split()[1]) == letters
    assert len(first) <= max(columns, 20)


def test_a_state_is_drawn(kvplan: Run, tmp_path: Path):
    picture = tmp_path / "map.svg"

    assert kvplan("inspect", "--state", HYBRID, "--output", str(picture), "--quiet")[0] == 0
    assert ElementTree.fromstring(picture.read_text()).tag == "{http://www.w3.org/2000/svg}svg"


def changed(tmp_path: Path, **fields: Any) -> str:
    """The paged state with other fields."""
    data = json.loads(Path(PAGED).read_text()) | fields
    file = tmp_path / "state.json"
    file.write_text(json.dumps(data))
    return str(file)


def test_a_name_is_shown_without_what_a_terminal_would_obey(kvplan: Run, tmp_path: Path):
    requests = json.loads(Path(PAGED).read_text())["requests"]
    name = "a\x1b[31m\n'b'"
    requests[0]["rid"] = name
    file = changed(tmp_path, requests=requests)
    spelled = r"a\x1b[31m\n'b'"

    for asked in ((), ("--slot", "300"), ("--request", name, "--position", "3")):
        code, out, _ = kvplan("inspect", "--state", file, *asked)
        assert code == 0
        assert spelled in out
        assert "\x1b" not in out
    code, out, err = kvplan("inspect", "--state", file, "--request", "zz", "--position", "3")
    assert (code, out) == (2, "")
    assert f"one of: '{spelled}', 'batch-1'" in err
    report = kvplan("inspect", "--state", file, "--json")[1]
    assert name in {each["rid"] for each in json.loads(report)["occupancy"]["requests"]}


def test_an_unknown_name_is_not_answered_with_thousands(kvplan: Run, tmp_path: Path):
    rows = [
        {"rid": f"chat-{row}", "row": row, "seq_len": 0, "slots": []} for row in range(1, 5_000)
    ]
    fields = {"rows": 5_000, "row_width": 9, "requests": rows, "cached": [], "launch": None}
    file = changed(tmp_path, **fields)

    err = kvplan("inspect", "--state", file, "--request", "zz", "--position", "0")[2]

    assert "one of: 'chat-1', 'chat-10', 'chat-100'" in err
    assert err.endswith(", and 4,987 more\n")


def test_a_state_that_is_none_of_its_own_launch_is_refused(kvplan: Run, tmp_path: Path):
    launch = json.loads(Path(PAGED).read_text())["launch"]
    launch["server"]["page_size"] = 64

    code, out, err = kvplan("inspect", "--state", changed(tmp_path, launch=launch))

    assert (code, out) == (2, "")
    assert "the state has 16 tokens a page, the plan of its own launch 64" in err
    assert "no MODEL" not in err


def test_lost_pages_are_an_answer_that_says_no(kvplan: Run, tmp_path: Path):
    file = changed(tmp_path, kv={"tokens": 4096, "free_pages": [[123, 134]]})

    code, out, _ = kvplan("inspect", "--state", file)

    assert code == 1
    assert out.startswith("24 pages are lost, nobody's and not free · kv 98 of 256")
    assert "! lost 24" in out


def test_a_state_without_a_launch_still_says_where(kvplan: Run, tmp_path: Path):
    file = changed(tmp_path, launch=None)

    code, out, _ = kvplan("inspect", "--state", file, "--request", "chat-7", "--position", "800")

    assert code == 0
    assert out.startswith("'chat-7' · row 3, position 800 · slot 1,504 · page 94 + 0")
    assert "warning: the state names no launch: name MODEL and --gpu too" in out


def test_every_stage_is_shown(answer):
    stages = ("llama-3.1-70b", "--gpu", "h100", "--tp", "4", "--pp-size", "2")

    report = answer(*stages, "--all-ranks", "--slot", "77")
    second = answer(*stages, "--pp-rank", "1")

    assert [each["layers"] for each in report["layout"]] == [[0, 40], [40, 80]]
    assert sorted(places(report, "kv.k")) == list(range(80))
    assert [each["pp_rank"] for each in second["layout"]] == [1]


def test_pools_are_built_and_compared(kvplan: Run, answer):
    on_meta = answer(*LLAMA, "--allocate", "--device", "meta")["allocation"][0]
    small = answer(*LLAMA, *TINY, "--allocate", "--device", "cpu", "--kv-scale")["allocation"][0]
    code, out, _ = kvplan("inspect", "qwen3-0.6b", "--gpu", "t4", *TINY, "--allocate", "--quiet")

    assert on_meta["as_planned"]
    assert on_meta["built_bytes"] == on_meta["planned_bytes"] > 50 << 30
    assert small["built_bytes"] == small["planned_bytes"] < 1 << 20
    assert (code, out.partition(" of ")[0]) == (0, "as planned: every tensor")


def test_each_stage_is_built_under_its_name(kvplan: Run, answer):
    argv = (*LLAMA, *TINY, "--pp-size", "2", "--all-ranks", "--allocate", "--device", "meta")

    built = answer(*argv)["allocation"]
    out = kvplan("inspect", *argv)[1]

    assert [each["pp_rank"] for each in built] == [0, 1]
    assert [each["layers"] for each in built] == [[0, 16], [16, 32]]
    assert "stage 0, layers 0–15\n" in out
    assert "stage 1, layers 16–31\n" in out


FEW = ("--max-total-tokens", "16384", "--context-length", "1024", "--max-running-requests", "4")
FORMS = {
    "unified sliding": ("gpt-oss-20b", "--gpu", "h100", "--enable-unified-memory"),
    "unified states": (
        "qwen3-next-80b-a3b", "--gpu", "h200", "--tp", "2", "--enable-unified-memory",
        "--max-mamba-cache-size", "96",
    ),
    "shards": (
        "deepseek-v3", "--gpu", "h200", "--tp", "8", "--enable-kv-cache-sharding",
        "--disaggregation-mode", "prefill", "--page-size", "64", "--chunked-prefill-size", "8192",
    ),
    "request rings": (
        "deepseek-v4-flash", "--gpu", "mi300x", "--tp", "8", "--set", "dsv4_unified_kv=true",
    ),
    "uniform rows": (
        "deepseek-v4-flash", "--gpu", "b200", "--tp", "8", "--dsv4-attn-backend", "trtllm",
    ),
    "swap": (
        "deepseek-v3.2", "--gpu", "h200", "--tp", "8", "--enable-hisparse",
        "--disable-radix-cache",
    ),
    "embeddings by layer": ("gemma-3n-e4b-it", "--gpu", "h100"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_pools_is_laid_out_and_built(answer, form):
    """At full size on meta, and with few tokens for real."""
    report = answer(*FORMS[form], "--allocate", "--device", "meta")
    small = answer(*FORMS[form], *FEW, "--allocate", "--device", "cpu", "--kv-scale")
    (layout,), (built,) = report["layout"], report["allocation"]

    assert layout["total_bytes"] == layout["ledger_bytes"]
    assert all(each["bytes"] == each["ledger_bytes"] for each in layout["totals"])
    assert built["as_planned"]
    assert small["allocation"][0]["as_planned"]
    assert built["built_bytes"] == sum(
        each["bytes"] for each in layout["tensors"] if each["pool"] != "allocator"
    )


def test_a_slot_of_sharded_pages_is_found_on_its_rank(answer):
    """Page 15 of 8 ranks is page 1 of the last: 64 + 40 latents of 576 x 2 B."""
    report = answer(*FORMS["shards"], "--slot", "1000")

    assert (report["address"]["dcp_rank"], report["address"]["dcp_slot"]) == (7, 104)
    assert set(places(report, "kv.latent").values()) == {(104 * 1152, 1152)}


def test_a_launch_that_does_not_start_has_no_pools(kvplan: Run):
    code, out, _ = kvplan("inspect", "llama-3.1-70b", "--gpu", "h100")

    assert code == 1
    assert out.startswith("does not start: ")


REFUSALS = [
    (("--state", PAGED, "--request", "chat7", "--position", "0"), "did you mean 'chat-7'?"),
    (("--state", PAGED, "--request", "chat-7", "--position", "875"), "positions are 0 to 874"),
    (("--state", PAGED, "--slot", "4112"), "slots are 0 to 4111"),
    (("--state", PAGED, "--request", "chat-7"), "add --position, a token of the request"),
    (("--state", PAGED, "--position", "7"), "add --request, a request of the state"),
    ((*LLAMA, "--request", "a", "--position", "1"), "--request needs --state"),
    (("--state", PAGED, "--slot", "1", "--request", "a"), "exclude each other"),
    ((*LLAMA, "--kv-scale"), "--kv-scale needs --allocate"),
    ((*LLAMA, "--device", "cpu"), "--device needs --allocate"),
    ((*LLAMA, "--output", "map.svg"), "add --state, a file that 'kvplan trace"),
    ((*LLAMA, "--output", "map.png"), "no form is written for 'map.png'"),
    ((*LLAMA, "--pp-rank", "1"), "the plan has stage 0 alone"),
    ((*LLAMA, "--pp-rank", "0", "--all-ranks"), "exclude each other"),
    ((*LLAMA, "--slot", "99999999"), "there is no slot 99999999"),
    ((*FORMS["unified sliding"], "--slot", "100"), "pages of a unified buffer move"),
    ((*LLAMA, "--state", PAGED), "the state has 16 tokens a page, the plan 1"),
    (("qwen3-8b", "--gpu", "h100", "--page-size", "16", "--state", PAGED), "rows, the plan"),
    (("--gpu", "h100", "--state", PAGED), "no model is named"),
    (("--state", "nowhere.json"), "nowhere.json: cannot read"),
    ((*LLAMA, "--allocate", "--device", "tpu"), "unknown device 'tpu'"),
    ((*LLAMA, "--allocate", "--device", ""), "unknown device ''"),
    ((*LLAMA, "--output", "nowhere/report.json"), "the folder 'nowhere' does not exist"),
    ((*LLAMA, "--allocate", "--device", "cpu"), "GiB free, the pools take"),
    ((), "no model is named"),
]


@pytest.mark.parametrize(("argv", "words"), REFUSALS)
def test_what_cannot_be_looked_at_is_refused(kvplan: Run, argv: tuple[str, ...], words: str):
    code, out, err = kvplan("inspect", *argv)

    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert words in err


@pytest.mark.parametrize("name", ["report.json", "map.svg"])
def test_a_folder_is_no_place_for_a_report(kvplan: Run, tmp_path: Path, name: str):
    (tmp_path / name).mkdir()

    code, out, err = kvplan("inspect", "--state", PAGED, "--output", str(tmp_path / name))

    assert (code, out) == (2, "")
    assert f"{name}' is a folder" in err
    assert list(tmp_path.rglob("*")) == [tmp_path / name]


def test_nothing_that_is_read_is_overwritten(kvplan: Run, tmp_path: Path):
    state, config, launch = (
        tmp_path / each for each in ("state.json", "config.json", "launch.json")
    )
    state.write_text(Path(PAGED).read_text())
    config.write_text("{}")
    launch.write_text('{"model-path": "qwen3-8b"}')
    link = tmp_path / "link.json"
    link.symlink_to(state)
    for argv, output in (
        (("--state", str(state)), state),
        (("--state", str(state)), link),
        ((str(config), "--gpu", "h100"), config),
        ((str(tmp_path), "--gpu", "h100"), config),
        (("--launch-file", str(launch), "--gpu", "h100"), launch),
    ):
        before = output.read_bytes()

        code, out, err = kvplan("inspect", *argv, "--output", str(output))

        assert (code, out) == (2, "")
        assert "--output would overwrite '" in err
        assert output.read_bytes() == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_that_is_not_there_is_refused(kvplan: Run):
    code, _, err = kvplan("inspect", *LLAMA, "--allocate", "--device", "cuda")

    assert code == 2
    assert "CUDA was asked for and there is none here" in err
    assert "interpret" not in err  # a device of 'kvplan trace' alone


@pytest.mark.parametrize("argv", [LLAMA, ("--state", PAGED, "--slot", "300")])
def test_nothing_heavy_is_imported_to_look(argv: tuple[str, ...]):
    code = (
        "import sys; from kvplan.commands.app import main; main(sys.argv[1:]);"
        "print(sorted({'torch', 'numpy', 'pydantic'} & set(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-P", "-c", code, "inspect", *argv, "--quiet"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines()[-1] == "[]"
