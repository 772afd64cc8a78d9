"""Bad rows: an error with file, line and value, or counted and skipped."""

from __future__ import annotations

import pytest

from kvplan.errors import TraceError
from tests.replay.workloads.helpers import DATA, opened

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2030-01-07 09:00:00.0000000,5,6\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,m,1,2,3,x\n"
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,1,2\n"
MOON = '{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [1]}\n'
CHAT = (
    '{"chat_id": 1, "parent_chat_id": -1, "timestamp": 0, "input_length": 9, '
    '"output_length": 1, "hash_ids": [1]}\n'
)
WEKA = '{"block_size": 64, "hash_id_scope": "local", "requests": [%s]}\n'
LOG = '{"timestamp": "2030-05-01T10:00:00", "event": "request.received", "rid": "a", "obj": {}}\n'
EXPORT = (
    '{"request_parameters": "{}", "id": "m", "prompt_tokens": 4, "completion_tokens": 2, '
    '"request_received_ts": 5.0}\n'
)


def moon(**changes: object) -> str:
    values = {"timestamp": 1, "input_length": 9, "output_length": 1, "hash_ids": [1], **changes}
    return "{" + ", ".join(f'"{key}": {value}' for key, value in values.items()) + "}"


# (good start of a file, a bad line, what is said of it)
BAD = [
    (AZURE, "2030-01-07 09:00:00.5,-3,6", "'ContextTokens' is negative: -3"),
    (AZURE, "2030-01-07 09:00:00.5,5,nan", "'GeneratedTokens' is 'nan', not a whole number"),
    (AZURE, "2030-01-07 09:00:00.5,5,6.5", "'GeneratedTokens' is '6.5', not a whole number"),
    (AZURE, "2030-01-07 09:00:00.5,5,", "'GeneratedTokens' is '', not a whole number"),
    (AZURE, "2030-01-07 09:00:00.5,1000000000000,6", "is 1000000000000: more than 2147483647"),
    (AZURE, "2030-01-07 09:00:00.5,5", "2 fields instead of 3"),
    (AZURE, "2030-01-07 09:00:00.5,5,6,7", "4 fields instead of 3"),
    (AZURE, '2030-01-07 09:00:00.5,"5,6', "is no line of a CSV file"),
    (AZURE, "2030-01-07 09:00:61.5,5,6", "'2030-01-07 09:00:61.5' is no date and time"),
    (AZURE, "2030-02-30 09:00:00.5,5,6", "'2030-02-30 09:00:00.5' is no date and time"),
    (AZURE, "12.5,5,6", "'12.5' is no date and time"),
    (AZURE, "2030-01-07 09:00:00.5+00:00,5,6", "has a time zone, unlike the first time"),
    (AZURE, "0001-01-01 00:00:00,5,6", "is negative"),
    (AZURE, "2030-01-07 09:00:00.5٢,5,6", "'2030-01-07 09:00:00.5٢' is no date and time"),
    (AZURE, "2030-01-07 09:00:00.000000٢,5,6", "is no date and time"),
    (AZURE, "2030-01-07 09:00:01.000,٢,6", "'ContextTokens' is '٢', not a whole number"),
    (BURST, "1_000,m,1,2,3,x", "'Timestamp' is '1_000', not a number"),
    (BURST, "1_0e1_0,m,1,2,3,x", "'Timestamp' is '1_0e1_0', not a number"),
    (BURST, "٢,m,1,2,3,x", "'Timestamp' is '٢', not a number"),
    (BURST, "1.2.3,m,1,2,3,x", "'Timestamp' is '1.2.3', not a number"),
    (BURST, "9,m,1,2,4,x", "'Total tokens' is 4, but 1 + 2 is 3"),
    (BURST, "later,m,1,2,3,x", "'Timestamp' is 'later', not a number"),
    (BURST, "nan,m,1,2,3,x", "'Timestamp' is nan, not a time"),
    (BURST, "-1,m,1,2,3,x", "the time -1.0 is negative"),
    (BURST, "1e300,m,1,2,3,x", "the time 1e+300 is too large"),
    (VIDUR, "0.6,1,2048x", "'num_decode_tokens' is '2048x'"),
    (MOON, moon(input_length=-9), "'input_length' is negative: -9"),
    (MOON, moon(output_length=10**12), "'output_length' is 1000000000000"),
    (MOON, moon(output_length="9" * 200), "9: more than 2147483647 tokens are no request"),
    (MOON, moon(input_length='"9"'), "'input_length' is '9', not a whole number"),
    (MOON, moon(input_length="true"), "'input_length' is True, not a whole number"),
    (MOON, moon(input_length="9.5"), "'input_length' is 9.5, not a whole number"),
    (MOON, moon(timestamp="NaN"), "not JSON (invalid character (byte 14))"),
    (MOON, moon(timestamp="1e999"), "'timestamp' is"),
    (MOON, moon(timestamp="-5"), "the time -5 is negative"),
    (MOON, moon(timestamp="null"), "the key 'timestamp' is missing"),
    (MOON, moon(hash_ids='["a"]'), "'hash_ids[0]' is 'a', not a whole number"),
    (MOON, moon(hash_ids="{}"), "'hash_ids' is {}, not a list or null"),
    (MOON, moon(hash_ids="[1, 2]"), "2 hash ids do not fit an input of 9 tokens in blocks of 512"),
    (MOON, moon(session_id='"s"'), "a session's turn in a file whose first row has none"),
    (MOON, '{"timestamp": 1}', "the key 'input_length' is missing"),
    (
        MOON,
        '{"timestamp": 1, "input',
        'not JSON (the line ends early): \'{"timestamp": 1, "input\'',
    ),
    (MOON, moon(x=r'"\ud83d\ude00 \udbffa"'), r"not JSON (half a character: \udbff): "),
    (MOON, moon(x=r'"\ud83d\ude00')[:-1], "not JSON (the line ends early): "),
    (MOON, moon(x=r'"\ud800"'), r"not JSON (half a character: \ud800): "),
    (MOON, "2030-01-07 09:00:00.5,5,6", "not an object: '2030-01-07 09:00:00.5,5,6'"),
    (MOON, moon(x="[" * 5000 + "]" * 5000), "nested too deep"),
    (MOON, "[1]", "not an object"),
    (CHAT, CHAT.replace("[1]", "[1, 2]"), "a block size that fits: 8"),
    (CHAT, CHAT.replace("[1]", "[]"), "0 hash ids do not fit an input of 9 tokens in blocks of 16"),
    (WEKA % '{"t": 0, "in": 64, "out": 1, "hash_ids": [1]}', "{", "not JSON (the line ends early)"),
    (
        WEKA % '{"t": 0, "in": 64, "out": 1, "hash_ids": [1]}',
        '{"block_size": 64, "hash_id_scope": "locall", "requests": []}',
        "'hash_id_scope' is 'locall', neither 'local' nor 'global'",
    ),
    (EXPORT, EXPORT.replace("4", "-4", 1), "'prompt_tokens' is negative: -4"),
    (EXPORT, EXPORT.replace('"{}"', '"{"'), "not JSON (the line ends early): '{'"),
    (LOG, LOG.replace("2030-05-01T10", "later"), "is no date and time"),
    (LOG, LOG.replace("received", "finished"), "a finished request without 'rid' or 'out'"),
]


@pytest.mark.parametrize(("start", "line", "problem"), BAD)
def test_a_bad_row_is_an_error_with_file_line_and_value(tmp_path, start, line, problem):
    path = tmp_path / "w"
    path.write_text(f"{start}\n{line}\n{start.splitlines()[-1]}\n")
    number = start.count("\n") + 2

    with pytest.raises(TraceError) as caught:
        opened(path)

    assert str(caught.value).startswith(f"{path}:{number}: ")
    assert problem in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(("start", "line", "problem"), BAD)
def test_a_bad_row_can_be_counted_and_skipped(tmp_path, start, line, problem):
    del problem
    good = start.splitlines()[-1] if start is not LOG else FINISHED
    path = tmp_path / "w"
    path.write_text(f"{start}\n{line}\n{good}\n")

    rate = 1.0 if '"requests"' in start else None
    tally = opened(path, skip_bad_rows=True, request_rate=rate).tally

    assert tally.reconciles
    assert tally.dropped.total() == 1
    assert tally.kept == (1 if start is LOG else 2)


FINISHED = (
    '{"timestamp": "2030-05-01T10:00:01", "event": "request.finished", "rid": "a", "obj": {}, '
    '"out": {"meta_info": {"prompt_tokens": 3, "completion_tokens": 1}}}'
)


def test_a_bad_request_of_a_session_is_named(tmp_path):
    path = tmp_path / "w.json"
    good = '{"t": 0, "in": 64, "out": 1, "hash_ids": [1]}'
    path.write_text(WEKA % f"{good}, {good.replace('[1]', '[1, 2]')}")

    with pytest.raises(
        TraceError, match=r"w.json:1: request 1 of session 'w': 2 hash ids do not fit"
    ):
        opened(path)

    tally = opened(path, skip_bad_rows=True).tally
    assert (tally.kept, dict(tally.dropped)) == (1, {"hash count does not fit": 1})


def test_a_file_of_which_nothing_is_left_is_refused_with_the_counts(tmp_path):
    path = tmp_path / "w.csv"
    path.write_text(BURST.replace("5,m,1,2,3", "5,m,0,0,0"))

    with pytest.raises(TraceError, match=r"no request is left: 1 read, 0 kept, 1 dropped \(input"):
        opened(path)


@pytest.mark.parametrize(
    "header", ["Timestamp,Request tokens", AZURE.splitlines()[0] + ",TIMESTAMP"]
)
def test_a_header_with_a_missing_or_doubled_column_is_refused(tmp_path, header):
    path = tmp_path / "w.csv"
    path.write_text(f"{header}\n")

    with pytest.raises(TraceError, match=r"w.csv:1: "):
        opened(path)


def test_two_formats_in_one_file_are_refused_where_they_meet(tmp_path):
    path = tmp_path / "w.csv"
    path.write_bytes((DATA / "vidur.csv").read_bytes() + (DATA / "burstgpt_6.csv").read_bytes())

    with pytest.raises(TraceError, match=r"w.csv:5: 6 fields instead of 3"):
        opened(path)


OFFLINE = '{"request_id": 1, "type": "t", "input_length": 9, "output_length": 1}\n'


@pytest.mark.parametrize(
    ("start", "row", "title"),
    [
        (MOON, CHAT.replace("{", '{"type": "text", "turn": 1, '), "Qwen-Bailian, not Mooncake"),
        (OFFLINE, OFFLINE.replace("{", '{"timestamp": 3.0, '), "Mooncake, not ServeGen offline"),
    ],
)
def test_a_row_of_another_format_is_refused_though_it_has_what_is_needed(
    tmp_path, start, row, title
):
    path = tmp_path / "w.jsonl"
    path.write_text(start + row + start)
    rate = 1.0 if start is OFFLINE else None

    with pytest.raises(TraceError, match=rf"w.jsonl:2: the row is of another format: {title}"):
        opened(path, request_rate=rate)

    tally = opened(path, request_rate=rate, skip_bad_rows=True).tally
    assert (tally.kept, dict(tally.dropped)) == (2, {"inconsistent": 1})


def test_keys_that_no_format_needs_and_texts_that_name_such_keys_are_harmless(tmp_path):
    path = tmp_path / "w.jsonl"
    path.write_text(MOON + moon(chat_id=1) + "\n" + moon(note='"chat_id"'))

    assert opened(path).tally.kept == 3


def test_a_format_that_is_asked_for_takes_the_rows_that_it_was_asked_for(tmp_path):
    path = tmp_path / "w.jsonl"
    path.write_text(CHAT + CHAT)

    assert opened(path, format="mooncake").tally.kept == 2


@pytest.mark.parametrize(
    ("times", "unit", "warned"),
    [((0, 1, 2), "ms", False), ((0, 1, 2), "us", True), ((0, 10**8, 2 * 10**8), "ms", True)],
)
def test_a_pace_beyond_belief_asks_for_the_unit(tmp_path, times, unit, warned):
    path = tmp_path / "w.jsonl"
    path.write_text("\n".join(moon(timestamp=time) for time in times))

    notes = opened(path, time_unit=unit).notes

    assert any("is the time unit right?" in note for note in notes) == warned


def test_a_pace_beyond_belief_names_a_flag_only_where_it_is_taken(tmp_path):
    path = tmp_path / "w.csv"
    path.write_text(AZURE + "".join(f"2030-01-07 09:00:00.000000{n},5,6\n" for n in range(1, 9)))

    (note,) = opened(path).notes

    assert note.endswith("requests a second: are the times right?")


def test_fractions_of_milliseconds_ask_for_the_unit(tmp_path):
    path = tmp_path / "w.jsonl"
    path.write_text(f"{moon(timestamp=0.25)}\n{moon(timestamp=3.5)}\n")

    assert "say --time-unit s" in opened(path).notes[0]
