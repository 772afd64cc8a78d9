"""kvplan's own operations: read, written, and checked against each other."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.errors import KvplanError, TraceError
from kvplan.replay.workloads.events import open_events, write_events
from kvplan.replay.workloads.operations import Alloc, Decode, Evict, Extend, Free
from tests.replay.workloads.helpers import DATA, opened

HEADER = '{"kvplan": "events", "version": 1}\n'
ALLOC = '{"op": "alloc", "requests": ["a"]}\n'
EXTEND = '{"op": "extend", "requests": ["a"], "prefix_lens": [0], "seq_lens": [9]}\n'


def test_the_json_form_gives_operations_and_header():
    trace = open_events(DATA / "events.jsonl")

    assert trace.header == {"kvplan": "events", "version": 1, "page_size": 16, "tokens": 4096}
    assert list(trace) == [
        Alloc(requests=("a", "b")),
        Extend(requests=("a", "b"), prefix_lens=(0, 0), seq_lens=(40, 7), step=0),
        Decode(requests=("a", "b"), step=1),
        Free(requests=("b",), step=1),
        Evict(num_tokens=16, step=2),
        Free(requests=("a",), step=3),
    ]


def test_the_yaml_form_means_the_same():
    trace = open_events(DATA / "events.yaml")

    assert trace.header == {"kvplan": "events", "version": 1, "page_size": 16}
    assert [type(operation) for operation in trace] == [Alloc, Extend, Decode, Free]


names = st.lists(st.text(max_size=5), min_size=1, max_size=4, unique=True).map(tuple)


@settings(max_examples=50, deadline=None)
@given(st.lists(names, max_size=6, unique_by=lambda group: group[0]), st.integers(0, 2**31 - 1))
def test_what_is_written_is_read_back(tmp_path_factory, groups, num_tokens):
    path = tmp_path_factory.mktemp("events") / "e.jsonl"
    operations = [
        operation
        for group in groups
        for operation in (
            Alloc(requests=group),
            Extend(
                requests=group,
                prefix_lens=(3,) * len(group),
                seq_lens=tuple(range(4, 4 + len(group))),
                step=2,
            ),
            Decode(requests=group),
            Evict(num_tokens=num_tokens),
            Free(requests=group),
        )
    ]

    write_events(path, operations, page_size=64)

    assert list(open_events(path)) == operations
    assert open_events(path).header["page_size"] == 64


@pytest.mark.parametrize(
    ("lines", "line", "problem"),
    [
        (EXTEND, 2, "request 'a' has no row"),
        (ALLOC + ALLOC, 3, "request 'a' has a row already"),
        (
            ALLOC + EXTEND + '{"op": "leave", "requests": ["a"]}\n' + ALLOC,
            5,
            "request 'a' left, and its tokens are still cached",
        ),
        (
            ALLOC + EXTEND + '{"op": "release", "spans": [["a", 500, 600]]}',
            4,
            "request 'a' has no tokens 500 to 600",
        ),
        (
            ALLOC + EXTEND + '{"op": "move", "kept": [["a", 0, 9]], "incoming": [["a", 9, 10]]}',
            4,
            "request 'a' has no tokens 9 to 10",
        ),
        (ALLOC + '{"op": "decode", "requests": ["a"]}', 3, "request 'a' decodes without a prompt"),
        (ALLOC + EXTEND + EXTEND, 4, "request 'a' holds 9 tokens, but its prefix_len is 0"),
        (ALLOC + EXTEND.replace("[0]", "[12]"), 3, "request 'a' goes back from 12 to 9 tokens"),
        (ALLOC + EXTEND.replace("[0]", "[0, 0]"), 3, "1 requests, 2 prefix_lens, 1 seq_lens"),
        (ALLOC.replace('"a"', '"a", "a"'), 2, "a request is named twice"),
        ('{"op": "free", "requests": ["q"]}', 2, "request 'q' has no row"),
        ('{"op": "free", "requests": []}', 2, "'requests' is [], not a list of length >= 1"),
        ('{"op": "evict", "num_tokens": -1}', 2, "'num_tokens' is -1, not a whole number >= 0"),
        ('{"op": "evict", "num_tokens": 1000000000000}', 2, "'num_tokens' is 1000000000000"),
        ('{"op": "evict", "num_token": 1}', 2, "unknown field `num_token`"),
        ('{"op": "evikt"}', 2, "'op' is 'evikt'"),
        ('{"op": ', 2, "not JSON (the line ends early)"),
    ],
)
def test_an_operation_that_cannot_be_is_refused_with_its_line(tmp_path, lines, line, problem):
    path = tmp_path / "e.jsonl"
    path.write_text(HEADER + lines)

    with pytest.raises(TraceError) as caught:
        list(open_events(path))

    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert problem in str(caught.value)


def test_yaml_operations_are_refused_with_line_and_column(tmp_path):
    path = tmp_path / "e.yaml"
    path.write_text(
        (DATA / "events.yaml")
        .read_text()
        .replace("op: free, requests: [a]", "op: free, requests: [b]")
    )

    with pytest.raises(KvplanError, match=r"e.yaml:8:5: request 'b' has no row"):
        list(open_events(path))


@pytest.mark.parametrize(
    "header", ['{"kvplan": "events", "version": 2}', '{"kvplan": "x", "version": 1}']
)
def test_another_version_is_refused(tmp_path, header):
    path = tmp_path / "e.jsonl"
    path.write_text(f"{header}\n{ALLOC}")

    with pytest.raises(TraceError, match=r"e.jsonl:1: kvplan .* of version"):
        open_events(path)


def test_operations_are_no_requests_and_requests_no_operations():
    with pytest.raises(TraceError, match="operations on the pools, not requests"):
        opened(DATA / "events.jsonl")
    with pytest.raises(TraceError, match="not readable as 'events', which needs kvplan, version"):
        open_events(DATA / "mooncake_exact.jsonl")


def test_an_unknown_operation_is_refused_with_those_there_are(tmp_path):
    file = tmp_path / "own.jsonl"
    file.write_text('{"kvplan": "events", "version": 1}\n{"op": "allok", "requests": ["a"]}\n')
    with pytest.raises(TraceError) as caught:
        list(open_events(file))

    assert caught.value.where == f"{file}:2"
    assert "alloc, extend, decode" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("header", "stop", "taken"),
    [("", 600, True), (', "page_size": 8', 16, True), (', "page_size": 8', 17, False)],
)
def test_a_span_ends_with_the_last_page_of_its_tokens(tmp_path, header, stop, taken):
    path = tmp_path / "e.jsonl"
    release = f'{{"op": "release", "spans": [["a", 8, {stop}]]}}\n'
    path.write_text(f'{{"kvplan": "events", "version": 1{header}}}\n{ALLOC}{EXTEND}{release}')

    if taken:
        assert len(list(open_events(path))) == 3
    else:
        with pytest.raises(TraceError, match=r"e.jsonl:4: request 'a' has no tokens 8 to 17"):
            list(open_events(path))
