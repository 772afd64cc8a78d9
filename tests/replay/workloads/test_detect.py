"""Detection by content: the decision and its reasons, overriding it, and what is refused."""

from __future__ import annotations

import pickle
import time

import pytest

from kvplan.errors import KvplanError, TraceError
from kvplan.replay.workloads.detect import detect
from kvplan.replay.workloads.formats import FORMATS
from tests.replay.workloads.helpers import DATA

EXPECTED = {
    "azure_2023.csv": ("azure", "2023: the first time '2030-01-07 09:00:00.0000000' has no zone"),
    "azure_2024.csv": (
        "azure",
        "2024: the first time '2031-03-02 23:59:58.000120+00:00' has a zone",
    ),
    "azure_2025.csv": ("azure", "2025 multimodal"),
    "burstgpt_6.csv": ("burstgpt", "6 columns"),
    "burstgpt_8.csv": ("burstgpt", "8 columns: the header has 'Session ID'"),
    "vidur.csv": ("vidur", "with arrivals"),
    "vidur_lengths.csv": ("vidur", "lengths alone: no column 'arrived_at'"),
    "mooncake_exact.jsonl": ("mooncake", "with hash_ids"),
    "mooncake_partial.jsonl": ("mooncake", "with hash_ids"),
    "mooncake_prefix.jsonl": ("mooncake", "with hash_ids"),
    "mooncake_turns.jsonl": ("mooncake", "turns of conversations"),
    "bailian.jsonl": ("bailian", "times are seconds"),
    "servegen_a.jsonl": ("servegen", "a-c: hashes, no answers"),
    "servegen_d.jsonl": ("servegen", "d-f: answers, no hashes"),
    "weka.json": ("weka", "ids are local"),
    "weka.jsonl": ("weka", "ids are local"),
    "dynamo.jsonl": ("dynamo", "request trace v1"),
    "sglang_requests.log": ("sglang_log", "joined by their rid"),
    "sglang_metrics.log": ("sglang_metrics", "with arrival times"),
    "events.jsonl": ("events", "JSON lines below a header"),
    "events.yaml": ("events", "one YAML document"),
    "synthetic.yaml": ("synthetic", "with shared prefixes"),
    "synthetic_sessions.yaml": ("synthetic", "with shared prefixes and sessions"),
}


def test_every_file_of_ours_is_expected_and_every_format_has_one():
    assert {path.name for path in DATA.iterdir()} == EXPECTED.keys()
    assert {format for format, _ in EXPECTED.values()} == FORMATS.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_the_content_decides_and_not_the_name(tmp_path, name):
    path = tmp_path / "trace.txt"
    path.write_bytes((DATA / name).read_bytes())

    found = detect(path)

    assert found.format == EXPECTED[name][0]
    assert EXPECTED[name][1] in found.layout
    assert found.describe().startswith(f"{found.format} ({found.title}): {found.layout}; ")


def test_the_decision_names_what_it_rests_on():
    assert detect(DATA / "vidur.csv").describe() == (
        "vidur (Vidur / Splitwise processed): with arrivals; "
        "the header is arrived_at, num_prefill_tokens, num_decode_tokens"
    )


def test_a_named_format_is_taken_if_the_file_has_what_it_needs(tmp_path):
    both = tmp_path / "both.csv"
    header = (
        "TIMESTAMP,ContextTokens,GeneratedTokens,arrived_at,num_prefill_tokens,num_decode_tokens"
    )
    both.write_text(f"{header}\n2030-01-07 09:00:00,5,6,0.5,7,8\n")

    with pytest.raises(TraceError, match=r"both.csv:1: could be Azure .* or Vidur") as caught:
        detect(both)

    assert caught.value.hint == "say which with --format"
    assert detect(both, format="vidur").format == "vidur"
    assert "as asked" in detect(both, format="azure").describe()


@pytest.mark.parametrize(
    ("name", "format", "problem"),
    [
        ("vidur.csv", "azure", "not readable as 'azure', which needs ContextTokens"),
        ("vidur.csv", "mooncake", "which needs input_length"),
        ("mooncake_exact.jsonl", "bailian", "which needs chat_id, parent_chat_id"),
    ],
)
def test_a_named_format_that_does_not_fit_is_refused(name, format, problem):
    with pytest.raises(TraceError, match=problem):
        detect(DATA / name, format=format)


def test_an_unknown_format_gets_the_nearest_name():
    with pytest.raises(TraceError, match="unknown workload format 'mooncacke'") as caught:
        detect(DATA / "vidur.csv", format="mooncacke")

    assert caught.value.hint == "did you mean 'mooncake'?"


class Explosive:
    def __reduce__(self):
        return (pytest.fail, ("a workload file was unpickled",))


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_refused_unopened_with_the_text_forms_named(tmp_path, protocol):
    path = tmp_path / "dump.pkl"
    path.write_bytes(pickle.dumps({"requests": Explosive()}, protocol))

    with pytest.raises(TraceError, match=r"dump.pkl:1: a Python pickle") as caught:
        detect(path)

    assert "--log-requests-format json" in (caught.value.hint or "")
    assert "--export-metrics-to-file" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the file is empty"),
        (b"\n \r\n\n", "the file is empty"),
        (b"PAR1\x15\x04", ":1: a Parquet file"),
        (b"PK\x03\x04....", ":1: a zip archive"),
        (b"\xff\xfeT\x00I\x00", ":1: UTF-16 text"),
        (b"TIMESTAMP,a\n1,\x00\n", ":2: a binary file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "a Git LFS pointer"),
        (b"hello world\n", ":1: neither CSV, JSON nor YAML: 'hello world'"),
        (b"a,b,c\n1,2,3\n", ":1: not a workload format that kvplan knows: the header is a, b, c"),
        (b'{"a": 1}\n', ":1: not a workload format that kvplan knows: the keys are a"),
        (b'{"a": 1\n', ":1: not JSON"),
        (b'{\n"a": 1,\n"b" 2\n}\n', ":3: not JSON"),
        (b'{\n"a": 1,\n', ":3: the JSON document ends early"),
        (
            b'{\n"timestamp": 0,\n"input_length": 1,\n"output_length": 1\n}\n',
            ":1: one JSON object over many lines, not a Mooncake file",
        ),
        (b'{\n"timestamp": 0\n}\n{\n"timestamp": 1\n}\n', ":4: not JSON"),
        (b"[1, 2]\n", ":1: the first row is no object"),
        (b'[{"timestamp": 0}]\n', ":1: a JSON array of objects with the keys timestamp"),
        (b"[" * 100_000, ":1: nested too deep"),
        (b'{"a":' * 100_000, ":1: nested too deep"),
        (
            b"# Title\n\nSome prose: with colons: in it\n",
            ":3:24: no workload that can be read: neither CSV nor JSON, and as YAML: mapping values",
        ),
        (
            b"requests: 5\narrivals: {process: at_once}\ninput: 5\n",
            ":1: not quite synthetic workload, which also needs output: the keys are requests",
        ),
        (b'{"timestamp": 0, "input_length": 5}\n', "not quite Mooncake, which also needs out"),
        (b"TIMESTAMP,ContextTokens\n", "not quite Azure LLM inference, which also needs Gen"),
        (b"- a\n- b\n", "neither CSV, JSON nor YAML"),
        (b"arrivals: {process: poisson\n", "did not find expected"),
        (
            b'[{"id": 1, "conversations": []}]',
            ":1: a JSON array of objects with the keys id, conversations",
        ),
        (
            b'{"session_id": "s", "date": "d", "turns": []}\n',
            "recognised but not supported: GitHub Copilot agent sessions, since it counts",
        ),
    ],
)
def test_what_is_no_workload_is_refused_with_its_place(tmp_path, content, problem):
    path = tmp_path / "w"
    path.write_bytes(content)

    with pytest.raises(Exception) as caught:  # noqa: PT011
        detect(path)

    assert type(caught.value).__module__ == "kvplan.errors"
    assert problem in str(caught.value)


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(TraceError, match=r"absent\.csv: no such file"):
        detect(tmp_path / "absent.csv")
    with pytest.raises(TraceError, match=r"a folder without \.json files"):
        detect(tmp_path)

    (tmp_path / "a.json").write_text('{"timestamp": 0, "input_length": 1, "output_length": 1}')

    with pytest.raises(TraceError, match="a folder whose files are no agent sessions"):
        detect(tmp_path)


@pytest.mark.parametrize("name", ["x" * 5_000, "nul\0", "file/below"])
def test_a_path_that_leads_nowhere_is_refused(tmp_path, name):
    (tmp_path / "file").write_text("")

    with pytest.raises(TraceError, match=r"cannot read|no such file"):
        detect(tmp_path / name)


@pytest.mark.parametrize(
    "content",
    [
        b'[x] {"timestamp": ' + b'"event": "request.' * 60_000,
        b"a: " + b"[" * 1_000_000,
        b"a,b\n" + b'"' * 1_000_001,
        b"arrivals: x\n" * 200_000,
    ],
    ids=["log", "yaml", "csv", "large yaml"],
)
def test_a_hostile_start_is_refused_at_once(tmp_path, content):
    path = tmp_path / "w"
    path.write_bytes(content)

    start = time.process_time()
    with pytest.raises(KvplanError):
        detect(path)

    assert time.process_time() - start < 5
