"""`kvplan trace` on the command line: verdicts, files, refusals."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from kvplan.commands.trace_view import requests_line

DATA = Path(__file__).resolve().parent.parent / "data" / "workloads"
LAUNCH = ("trace", "llama-3.1-8b", "--gpu", "h100")
SMALL = ("--max-total-tokens", "8192", "--context-length", "4096", "--max-running-requests", "16")
AZURE = DATA / "azure_2023.csv"


def report(kvplan, *argv):
    code, out, err = kvplan(*LAUNCH, *argv, "--json")
    assert code in (0, 1), err
    return code, json.loads(out)


def test_the_verdict_comes_first(kvplan):
    code, out, _ = kvplan(*LAUNCH, "--workload", "chat")

    assert code == 0
    assert out.startswith("fits, peak 29% of 418,177 tokens\n")
    assert "hit rate 51.1%" in out
    assert "clients ask for exactly the tokens they got" in out


def test_quiet_prints_the_verdict_alone(kvplan):
    assert kvplan(*LAUNCH, "--workload", "chat", "-q")[1] == "fits, peak 29% of 418,177 tokens\n"


def test_a_workload_that_does_not_fit_says_when_it_broke_and_fails(kvplan):
    code, out, _ = kvplan(
        *LAUNCH, *SMALL, "--workload", "chat", "--schedule-conservativeness", "0", "-q"
    )

    assert code == 1
    assert out.startswith("does not fit: ")
    assert re.search(r": \d+ retractions?, first at 00:0", out)
    assert " rejected; peak " in out


@pytest.mark.parametrize(
    ("conditions", "code"),
    [
        (["rejection"], 1),
        (["occupancy>0.5"], 1),
        (["retraction"], 0),
        (["occupancy>0.999", "retraction"], 0),
    ],
)
def test_fail_on_decides_what_is_a_failure(kvplan, conditions, code):
    flags = [part for condition in conditions for part in ("--fail-on", condition)]
    found, out, err = kvplan(*LAUNCH, *SMALL, "--workload", "documents", *flags)

    assert found == code, out + err


def test_json_has_a_schema_and_is_the_same_but_for_its_speed(kvplan):
    first, second = (report(kvplan, "--workload", "chat")[1] for _ in range(2))

    assert first["schema"] == "kvplan.trace/1"
    assert first.pop("speed").keys() == second.pop("speed").keys()
    assert first == second
    assert first["requests"]["finished"] == 1000
    assert len({len(column) for column in first["timeline"].values()}) == 1


def test_output_takes_its_form_from_the_name(kvplan, tmp_path):
    for suffix in ("json", "csv", "html"):
        code, _, err = kvplan(
            *LAUNCH, "--workload", AZURE, "-q", "--output", tmp_path / f"r.{suffix}"
        )
        assert code == 0, err

    assert json.loads((tmp_path / "r.json").read_text())["verdict"]["fits"]
    rows = list(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    assert rows[0].keys() >= {"t_s", "used", "running", "waiting"}
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")


def test_a_limit_and_a_wish_are_honoured(kvplan):
    _, found = report(kvplan, "--workload", "chat", "--limit", "10", "--max-new", "fixed 500")

    assert found["requests"]["arrived"] == 10
    assert any("ask for 500 new tokens" in text for text in found["assumed"])


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--max-total-tokens", "3000"), ["raise tokens: without --max-total-tokens → "]),
        (("--context-length", "512"), ["raise context: without --context-length → 131,072"]),
        (
            ("--max-total-tokens", "3000", "--context-length", "2048"),
            [
                "raise tokens: without --max-total-tokens → ",
                "raise context: without --context-length → 131,072",
            ],
        ),
        (("--limit", "1"), []),
    ],
)
def test_what_was_short_names_the_flags_that_raise_it(kvplan, flags, words):
    code, out, err = kvplan(*LAUNCH, "--workload", "chat", "--limit", "60", *flags)
    assert code == (1 if words else 0), err

    said = [line.strip() for line in out.splitlines() if line.startswith("  raise ")]
    assert len(said) == len(words)
    assert all(line.startswith(word) for line, word in zip(said, words, strict=True)), said


def test_a_short_sliding_pool_names_what_raises_that_pool(kvplan):
    launch = ("trace", "gpt-oss-20b", "--gpu", "h100", "--workload", "chat", "--limit", "60")
    code, out, _ = kvplan(*launch, "--swa-full-tokens-ratio", "0.001", "--json")
    found = json.loads(out)

    assert code == 1
    assert {each["name"] for each in found["remedies"]} == {"sliding tokens"}
    for remedy in found["remedies"]:
        flags = remedy["flag"].split()
        if flags[0] != "--swa-full-tokens-ratio":
            flags += ["--swa-full-tokens-ratio", "0.001"]
        again = json.loads(kvplan(*launch, *flags, "--json")[1])
        pools = {pool["name"]: pool["capacity"] for pool in again["pools"]}
        assert pools["sliding KV"] == remedy["value"]


def test_a_limit_that_no_flag_raises_is_said_to_be_one(kvplan, tmp_path):
    file = tmp_path / "long.csv"
    file.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,10,5\n1,140000,5\n")
    code, found = report(kvplan, "--workload", file)

    assert code == 1
    assert found["remedies"] == []
    assert found["warnings"] == [
        "no flag raises the model's own context of 131,072 tokens, which this workload exceeds"
    ]


def test_a_count_of_one_is_singular(kvplan):
    _, found = report(kvplan, "--workload", "chat", "--limit", "1")
    lines = [requests_line({**found["requests"], "retractions": count}) for count in (0, 1, 1200)]

    assert [line.split(" · ")[1] for line in lines] == [
        "0 retractions", "1 retraction", "1,200 retractions",
    ]  # fmt: skip


def test_every_row_of_the_file_is_accounted_for(kvplan, tmp_path):
    file = tmp_path / "mixed.csv"
    rows = ["5,44", "0,44", "7,0", "-7,1", "9,9"]
    lines = [f"2023-11-16 18:15:4{number}.6805900,{row}" for number, row in enumerate(rows)]
    file.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]))
    argv = ("--workload", file, "--skip-bad-rows", "--limit", "2")
    _, out, _ = kvplan(*LAUNCH, *argv)
    found = report(kvplan, *argv)[1]["workload"]

    assert found["read"] == found["kept"] + sum(found["dropped"].values()) == 5
    assert "rows        5 read · 3 kept · 1 dropped (input of 0 tokens)" in out
    assert "1 dropped (value out of range) · 1 kept with a remark (no answer: prefill only)" in out
    assert "note        the first 2 of 3 requests (--limit)" in out
    assert f"  workload    {file}: azure" in out


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_time_that_it_took_is_told(kvplan, device):
    _, found = report(kvplan, *SMALL, "--workload", AZURE, "--device", device, "--kv-scale")

    assert found["speed"]["events_per_s"] > 0
    reserve = found["reserve"]
    assert (reserve is None) == (device == "meta")
    assert reserve is None or 0 < reserve["most_in_step"] <= reserve["most_allowed"]
    assert reserve is None or 0 < reserve["longest_row"] <= reserve["row_width"]


@pytest.mark.parametrize(
    ("rate", "said"),
    [("inf", "all requests arrive at once"), ("4", "arrive at 4 a second, drawn with seed 7")],
)
def test_what_was_supplied_is_among_the_assumptions(kvplan, tmp_path, rate, said):
    row = {"request_id": 0, "type": "text", "input_length": 40, "hash_ids": [1, 2, 3, 4, 5]}
    file = tmp_path / "batch.jsonl"
    file.write_text("".join(json.dumps(row | {"request_id": n}) + "\n" for n in range(3)))
    supplied = ("--request-rate", rate, "--seed", "7", "--output-len", "12", "--block-size", "8")
    found = report(kvplan, "--workload", file, *supplied)[1]["assumed"]

    for text in (said, "every answer has 12 tokens", "a hashed block has 8 tokens"):
        assert any(text in note for note in found), found


def test_arrivals_without_a_seed_are_those_of_seed_0(kvplan, tmp_path):
    row = {"request_id": 0, "type": "text", "input_length": 40, "hash_ids": [1, 2, 3]}
    file = tmp_path / "batch.jsonl"
    file.write_text(json.dumps(row) + "\n")
    argv = ("--workload", file, "--request-rate", "2", "--output-len", "1")
    unnamed, named = report(kvplan, *argv)[1], report(kvplan, *argv, "--seed", "0")[1]

    assert unnamed["assumed"] == named["assumed"]
    assert any("drawn with seed 0" in note for note in unnamed["assumed"])


def test_step_times_stretch_the_replay(kvplan):
    quick, slow = (
        report(kvplan, "--workload", "chat", "--tpot", tpot)[1]["steps"]["end_s"]
        for tpot in ("5", "80")
    )

    assert slow > quick


def test_answers_count_in_full_however_many_tokens_a_step_brings(kvplan):
    drafts = ("--speculative", "eagle3", "--draft", "draft-eagle3-llama3.1-instruct-8b")
    argv = ("--workload", AZURE)
    plain, drafted = (
        report(kvplan, *argv)[1],
        report(kvplan, *argv, *drafts, "--accept-len", "3")[1],
    )

    assert drafted["steps"]["decode"] < plain["steps"]["decode"]
    assert drafted["requests"]["output_tokens"] == plain["requests"]["output_tokens"] > 0


def test_a_launch_without_overlap_is_replayed_without(kvplan):
    _, found = report(kvplan, "--workload", AZURE, "--disable-overlap-schedule")

    assert not found["launch"]["server"]["overlap"]


def test_scheduling_flags_of_a_written_launch_count(kvplan):
    line = "python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct"
    flags = " --schedule-policy lpm --schedule-conservativeness 0.5 --prefill-max-requests 4"
    code, out, err = kvplan(
        "trace", "--launch", line + flags, "--gpu", "h100", "--workload", AZURE, "--json"
    )
    assert code == 0, err
    found = json.loads(out)

    assert found["launch"]["server"]["schedule_policy"] == "lpm"
    assert found["launch"]["server"]["conservativeness"] == 0.5
    assert any("'prefill_max_requests' changes the schedule" in text for text in found["warnings"])


def test_the_live_view_goes_to_stderr(kvplan):
    code, out, _ = kvplan(*LAUNCH, "--workload", "chat", "--live", "-q")

    assert code == 0
    assert out == "fits, peak 29% of 418,177 tokens\n"


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--workload", "chatt"], "hint: did you mean 'chat'?"),
        (["--workload", "/nonexistent/x.csv"], "/nonexistent/x.csv"),
        ([], "no workload is named"),
        (["--workload", ""], "the workload has no name"),
        (["--workload", "chat", "--engine", "pool"], "did you mean 'pools'?"),
        (["--workload", "chat", "--device", "cudda"], "did you mean 'cuda'?"),
        (["--workload", "chat", "--engine", "accounting", "--stamp"], "--stamp needs pools"),
        (["--workload", "chat", "--fail-on", "retract"], "did you mean 'retraction'?"),
        (["--workload", "chat", "--request-rate", "1e-300"], "0.000001 or more, or inf"),
        (["--workload", "chat", "--device", "meta", "--stamp"], "--stamp needs slots, on meta"),
        (["--workload", "chat", "--device", "meta", "--record", "x.json"], "--record needs slots"),
        (["--workload", "chat", "--seed", "5"], "its seed is in the file: change 'seed' there"),
        (["--workload", "chat", "--max-new", "all"], "exact, context, or a whole number"),
        (["--workload", "chat", "--max-new", "0"], "a max_new of 0 tokens"),
        (["--workload", "chat", "--tpot", "0"], "--tpot 0 is no step time"),
        (["--workload", "chat", "--tpot", "nan"], "--tpot nan is no step time"),
        (["--workload", "chat", "--prefill-rate", "-1"], "--prefill-rate -1 is no rate"),
        (["--workload", "chat", "--schedule-policy", "sjf"], "'sjf'"),
        (["--workload", "chat", "--output", "x.xml"], "use a name in .json or .csv"),
        (["--workload", "chat", "--output", "/nonexistent/x.json"], "does not exist"),
        (
            ["--workload", "chat", "--output", "kvplan.json", "--record", "kvplan.json"],
            "each its own",
        ),
        (["--workload", "chat", "--record", "x.csv"], "use a name in .json or .jsonl"),
        (["--workload", "chat", "--format", "azure"], "not readable as 'azure'"),
    ],
)
def test_bad_input_is_refused(kvplan, flags, problem):
    code, out, err = kvplan(*LAUNCH, *flags)

    assert code == 2
    assert out == ""
    assert problem in err


BROKEN = {
    "truncated.jsonl": '{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1]}\n{"timest',
    "mixed.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,5,1\n{}\n",
    "empty.csv": "",
    "binary.csv": "\x00\x01\x02\x03" * 100,
    "negative.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,-5,1\n",
    "huge.csv": f"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,{10**12},1\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_workload_is_refused_and_nothing_is_written(kvplan, tmp_path, name):
    file = tmp_path / name
    file.write_text(BROKEN[name])
    written = [tmp_path / "r.json", tmp_path / "r.jsonl"]
    code, out, err = kvplan(
        *LAUNCH, "--workload", file, "--output", written[0], "--device", "cpu", "--kv-scale",
        "--record", written[1],
    )  # fmt: skip

    assert code == 2
    assert out == ""
    assert str(file) in err
    assert sorted(tmp_path.iterdir()) == [file]


UNSTARTED = [
    ("llama-3.1-405b", "--gpu", "h100"),
    ("llama-3.1-8b", "--gpu", "l4", "--mem-fraction-static", "0.99"),  # tables beside the pools
    ("nemotron-nano-9b-v2", "--gpu", "h100", "--max-total-tokens", "1"),
]


@pytest.mark.parametrize("launch", UNSTARTED)
def test_a_launch_that_does_not_start_is_refused_as_size_refuses_it(kvplan, tmp_path, launch):
    code, sized, _ = kvplan("size", *launch, "--quiet")
    argv = ("trace", *launch, "--workload", "chat")
    written = tmp_path / "r.json"
    runs = [kvplan(*argv, *more) for more in ((), ("-q",), ("--json", "--output", written))]

    assert [run[0] for run in runs] == [code] * 3 == [1] * 3
    assert runs[0][1].startswith(sized)
    assert runs[1][1] == sized
    found = json.loads(runs[2][1])
    assert found == json.loads(written.read_text())
    assert found["verdict"]["text"] == sized.strip()
    assert found["verdict"]["failed"] == ["start"]
    assert not found["verdict"]["passes"]


def test_the_accounting_engine_builds_no_pools_when_it_is_named(kvplan):
    argv = (*LAUNCH, "--workload", "chat", "--limit", "20")
    code, named, _ = kvplan(*argv, "--engine", "accounting")

    assert code == 0
    assert "accounting engine" in named
    assert kvplan(*argv)[1].splitlines()[:2] == named.splitlines()[:2]


@pytest.mark.parametrize("suffix", ["csv", "html"])
def test_a_launch_that_does_not_start_says_that_no_page_is_written(kvplan, tmp_path, suffix):
    file = tmp_path / f"report.{suffix}"
    argv = ("trace", "llama-3.1-70b", "--gpu", "h100", "--workload", "chat", "-q")
    code, _, err = kvplan(*argv, "--output", file)

    assert code == 1
    assert err == f"'{file}' is not written: there was no replay\n"
    assert not file.exists()


def test_files_of_its_own_that_are_no_workload_are_named(kvplan, tmp_path):
    state, written = tmp_path / "peak.json", tmp_path / "report.json"
    own = ("--record", state, "--output", written, "--device", "cpu", "--kv-scale")
    assert kvplan(*LAUNCH, *SMALL, "--workload", "chat", "--limit", "3", "-q", *own)[0] == 0

    for file, words in ((state, "'kvplan inspect --state'"), (written, "a report of")):
        code, _, err = kvplan(*LAUNCH, "--workload", file)
        assert (code, words in err) == (2, True), err


@pytest.mark.parametrize("page_size", ["1", "16"])
def test_a_server_log_that_kept_prompts_and_no_answers_is_replayed(kvplan, tmp_path, page_size):
    lines = []
    for number in range(3):
        meta = {"prompt_tokens": 40, "completion_tokens": 40, "e2e_latency": 1.0}
        event = {
            "timestamp": f"2026-01-01T00:00:0{2 * number + 1}",
            "event": "request.finished",
            "rid": f"r{number}",
            "obj": {"input_ids": list(range(40))},
            "out": {"meta_info": meta},
        }
        lines.append(json.dumps(event))
    log = tmp_path / "server.log"
    log.write_text("\n".join(lines) + "\n")

    _, found = report(kvplan, *SMALL, "--workload", str(log), "--page-size", page_size)

    assert found["requests"]["finished"] == 3
    assert found["prefix"]["hit_tokens"] == 2 * (39 // int(page_size) * int(page_size))


def test_the_bars_are_over_time(kvplan, tmp_path):
    file = tmp_path / "idle.csv"
    file.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,10000,50\n1000,10000,50\n")
    _, out, _ = kvplan(*LAUNCH, "--workload", file)

    (bars,) = re.findall(r"KV used [|](.*)[|]", out)
    assert bars[0] != " " != bars[-1]
    assert bars[1:-1].strip() == ""
    assert len(bars) > 5


def test_what_fail_on_lets_pass_is_told(kvplan):
    argv = ("--workload", "chat", "--schedule-conservativeness", "0", "-q")
    tight = (*LAUNCH, *SMALL, *argv)
    assert kvplan(*tight, "--fail-on", "wait_max>1000s")[0] == 1

    code, out, _ = kvplan(*tight, "--fail-on", "retraction>100000", "--fail-on", "rejection>100000")
    assert code == 0
    assert out.startswith("does not fit: ")
    assert out.endswith("; --fail-on lets that pass\n")


@pytest.mark.parametrize("flag", ["--output", "--record"])
def test_a_workload_is_never_overwritten(kvplan, tmp_path, flag):
    file, link = tmp_path / "own.json", tmp_path / "link.json"
    file.write_text(text := '{"timestamp": 0, "input_length": 5, "output_length": 3}\n')
    link.symlink_to(file)
    for name in (file, link):
        code, _, err = kvplan(*LAUNCH, "--workload", file, flag, name)

        assert code == 2
        assert f"{flag} would overwrite the workload '{name}'" in err
    assert file.read_text() == text


@pytest.mark.parametrize("flag", ["--output", "--record", "--workload"])
@pytest.mark.parametrize("kind", ["loop", "long"])
def test_names_that_no_file_can_have_are_refused_by_flag_and_path(kvplan, tmp_path, flag, kind):
    name = tmp_path / ("loop.json" if kind == "loop" else f"{'n' * 251}.json")
    if kind == "loop":
        name.symlink_to(name)

    code, _, err = kvplan(*LAUNCH, "--workload", "chat", flag, name)

    assert code == 2
    assert f"{name}: {flag} cannot be used: " in err.replace("\n", " ")


def test_a_limit_beyond_all_counting_is_no_limit(kvplan):
    assert kvplan(*LAUNCH, "--workload", "chat", "--limit", str(1 << 64), "-q")[0] == 0


@pytest.mark.parametrize("argv", [LAUNCH, ("trace", "gpt-oss-20b", "--gpu", "h100")])
@pytest.mark.parametrize("workload", ["chat", "documents"])
def test_both_engines_draw_the_same_bars(kvplan, argv, workload):
    launch = (*argv, "--max-total-tokens", "60000", "--workload", workload, "--limit", "60")
    counted, measured = (
        re.search(r"used \|(.*)\|", kvplan(*launch, *engine)[1])
        for engine in ((), ("--device", "cpu", "--kv-scale"))
    )

    assert counted is not None
    assert measured is not None
    assert len(counted[1]) > 20
    assert counted[1] == measured[1]


def test_idle_time_is_empty_and_a_long_answer_is_not(kvplan, tmp_path):
    file = tmp_path / "w.csv"
    rows = "0,2000,3000\n200,2000,3000\n"
    file.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + rows)
    _, out, _ = kvplan(*LAUNCH, "--max-total-tokens", "6000", "--workload", file)
    bars = re.search(r"used \|(.*)\|", out)

    assert bars is not None
    assert re.fullmatch(r"[▃-█]+ +[▃-█]+", bars[1])


def test_long_waits_are_in_the_verdict_with_what_shortens_them(kvplan):
    argv = (*LAUNCH, "--workload", "chat")
    code, out, _ = kvplan(*argv, "--max-running-requests", "4")
    lines = out.splitlines()

    assert code == 0
    assert re.fullmatch(r"fits, peak 5% of [\d,]+ tokens; requests wait up to 1,\d+ s", lines[0])
    assert lines[1] == "  raise running requests: --max-running-requests 8 → 8"
    assert "wait up to" not in kvplan(*argv, "-q")[1]
    short = ("--max-total-tokens", "12000", "--context-length", "8192", "--max-new", "exact")
    assert (
        "  raise tokens: " in kvplan(*LAUNCH, *short, "--workload", "documents", "--limit", "50")[1]
    )


def test_every_output_that_is_named_is_written(kvplan, tmp_path):
    files = [tmp_path / f"r{suffix}" for suffix in (".json", ".csv", ".html")]
    named = [word for file in files for word in ("--output", file)]
    code, _, err = kvplan(*LAUNCH, "--workload", AZURE, *named, "-q")

    assert (code, err) == (0, "")
    assert sorted(tmp_path.iterdir()) == sorted(files)
    code, _, err = kvplan(*LAUNCH, "--workload", AZURE, *named, "--output", files[0])
    assert code == 2
    assert "--output and --output both name" in err


@pytest.mark.parametrize(("wish", "rest"), [("exact", 0), ("context", 0), ("50", 0)])
def test_a_wish_that_the_workload_has_is_not_assumed(kvplan, tmp_path, wish, rest):
    file = tmp_path / "w.yaml"
    file.write_text(
        "requests: 20\narrivals: {process: poisson, requests_per_s: 5.0}\n"
        "input: 100\noutput: 40\nmax_new: 60\n"
    )
    notes = report(kvplan, "--workload", file, "--max-new", wish)[1]["assumed"]

    assert any(
        note.startswith("20 requests ask for the new tokens that the workload says")
        for note in notes
    )
    assert sum("ask for" in note for note in notes) == 1 + rest
    file.write_text(file.read_text().replace("max_new: 60\n", ""))
    notes = report(kvplan, "--workload", file, "--max-new", wish)[1]["assumed"]
    assert sum(note.startswith("clients ask for") for note in notes) == 1
    assert not any("workload says" in note for note in notes)


@pytest.mark.parametrize(
    "flag", ["strip-thinking-cache", "enable-prefill-delayer", "enable-streaming-session"]
)
def test_flags_that_no_scheduling_rule_covers_are_told(kvplan, flag):
    warnings = report(kvplan, "--workload", AZURE, f"--{flag}")[1]["warnings"]

    assert any(f"'{flag.replace('-', '_')}' changes the schedule" in text for text in warnings)


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("schedule-policy", "lof"),
        ("radix-eviction-policy", "tlru"),
        ("radix-eviction-policy", "priority"),
    ],
)
def test_a_policy_of_the_engine_that_is_not_modelled_is_refused_as_such(kvplan, flag, value):
    code, _, err = kvplan(*LAUNCH, "--workload", AZURE, f"--{flag}", value)

    assert code == 2
    assert f"the replay does not model the {flag.split('-')[-2]} policy '{value}'" in err
    assert "hint: it models " in err


def test_replicas_share_the_requests(kvplan):
    ranks = {
        number: report(kvplan, "--workload", "chat", "--limit", "100", "--dp-size", number)[1]
        for number in ("1", "4")
    }

    assert ranks["1"]["requests"]["arrived"] == 4 * ranks["4"]["requests"]["arrived"] == 100
    assert any("one of 4 data-parallel ranks" in note for note in ranks["4"]["assumed"])
