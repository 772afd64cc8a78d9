"""Packed and odd files: the same lines come out, damage is an error with its line."""

from __future__ import annotations

import gzip
import re
import sys

import pytest
import zstandard
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kvplan.errors import MissingExtra, TraceError
from kvplan.replay.workloads import stream
from kvplan.replay.workloads.stream import line_batches, numbered_lines, open_source
from tests.replay.workloads.helpers import DATA, opened, requests

PACK = {"gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}
ROWS = b"".join(b"%d.5,%d,%d\n" % (i, i % 900 + 1, i % 70 + 1) for i in range(60_000))
VIDUR = b"arrived_at,num_prefill_tokens,num_decode_tokens\n" + ROWS


@pytest.mark.parametrize("packed", PACK)
@pytest.mark.parametrize(
    "name", ["azure_2023.csv", "mooncake_partial.jsonl", "weka.json", "synthetic.yaml"]
)
def test_a_packed_file_gives_the_same_requests_whatever_its_name(tmp_path, packed, name):
    path = tmp_path / "plain.txt"
    path.write_bytes(PACK[packed]((DATA / name).read_bytes()))

    workload = opened(path)

    assert list(workload) == requests(DATA / name)
    assert workload.detected.compression == packed
    assert packed in workload.detected.describe()


@pytest.mark.parametrize("packed", PACK)
def test_joined_packed_files_are_read_to_the_last(tmp_path, packed):
    path = tmp_path / "w"
    path.write_bytes(PACK[packed](VIDUR) + PACK[packed](b"90000.0,5,6\n"))

    assert len(opened(path)) == 60_001


SKIPPED = b"\x5a\x2a\x4d\x18\x05\0\0\0hello"


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(VIDUR) + bytes(5000),
        gzip.compress(VIDUR[:999]) + bytes(3) + gzip.compress(VIDUR[999:]),
        SKIPPED + PACK["zstd"](VIDUR),
        PACK["zstd"](VIDUR[:999]) + SKIPPED + PACK["zstd"](VIDUR[999:]) + SKIPPED,
    ],
)
def test_what_packed_files_may_hold_beside_their_data_is_passed_over(tmp_path, content):
    path = tmp_path / "w"
    path.write_bytes(content)

    assert len(opened(path)) == 60_000


@pytest.mark.parametrize("packed", PACK)
@pytest.mark.parametrize("kept", [0.5, 0.999])
def test_a_packed_file_that_ends_early_is_an_error_with_its_line(tmp_path, packed, kept):
    path = tmp_path / "w"
    content = PACK[packed](VIDUR)
    path.write_bytes(content[: int(len(content) * kept)])

    with pytest.raises(TraceError, match=rf"w:\d+: the {packed} data ends early") as caught:
        opened(path, skip_bad_rows=True)

    assert int(str(caught.value).removeprefix(f"{path}:").split(":")[0]) > 10_000


@pytest.mark.parametrize("packed", PACK)
def test_damaged_packed_data_is_an_error(tmp_path, packed):
    path = tmp_path / "w"
    content = bytearray(PACK[packed](VIDUR))
    content[-6 if packed == "gzip" else 9] ^= 0xFF
    path.write_bytes(content)

    with pytest.raises(TraceError, match=r"w:\d+: "):
        opened(path)


def test_zstd_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    path = tmp_path / "w"
    path.write_bytes(PACK["zstd"](VIDUR))
    monkeypatch.setitem(sys.modules, "zstandard", None)

    with pytest.raises(MissingExtra) as caught:
        opened(path)

    assert "pip install 'kvplan-pools[zstd]'" in (caught.value.hint or "")


def quoted(content: bytes) -> bytes:
    return re.sub(rb"[^,\n]+", rb'"\g<0>"', content)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: b"\xef\xbb\xbf" + content,
        lambda content: content.replace(b"\n", b"\r\n"),
        lambda content: content.rstrip(b"\n"),
        lambda content: content.replace(b"\n", b"\n\n  \r\n"),
        lambda content: b"\n" + content + b"\n\n",
        quoted,
    ],
    ids=["byte order mark", "crlf", "no last newline", "blank lines", "blank around", "quoted"],
)
def test_odd_spellings_of_a_file_make_no_difference(tmp_path, change):
    content = (DATA / "vidur.csv").read_bytes()
    path = tmp_path / "w.csv"
    path.write_bytes(change(content))

    found = requests(path)

    assert [(r.t_ns, r.input_len, r.output_len) for r in found] == [
        (r.t_ns, r.input_len, r.output_len) for r in requests(DATA / "vidur.csv")
    ]


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(
        st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"").replace(b"\r", b"")),
        min_size=1,
        max_size=40,
    ),
    batch=st.integers(1, 64),
    last=st.booleans(),
)
def test_lines_do_not_depend_on_how_a_file_is_cut_into_batches(
    tmp_path_factory, lines, batch, last
):
    path = tmp_path_factory.mktemp("lines") / "w"
    path.write_bytes(b"\n".join(lines) + (b"\n" if last else b""))
    assume(open_source(path).compression is None)
    expected = path.read_bytes().removeprefix(stream.BOM).split(b"\n")
    expected = expected[:-1] if expected[-1] == b"" else expected

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "BATCH_BYTES", batch)
        patch.setattr("kvplan.replay.workloads.compression.CHUNK_BYTES", batch)
        batches = list(line_batches(open_source(path)))

    assert [line for _, part in batches for line in part] == expected
    assert all(
        first == 1 + sum(len(part) for _, part in batches[:index])
        for index, (first, _) in enumerate(batches)
    )


def test_lines_are_numbered_from_one_and_blank_ones_count(tmp_path):
    path = tmp_path / "w"
    path.write_bytes(b"\n a\r\n\n\t\nb")

    assert list(numbered_lines(open_source(path))) == [(2, b" a"), (5, b"b")]


@pytest.mark.parametrize("packed", [None, "zstd", "gzip"])
def test_an_endless_line_is_refused_before_it_fills_the_memory(tmp_path, packed):
    path = tmp_path / "w"
    content = VIDUR + b"7" * (19 << 20)
    path.write_bytes(content if packed is None else PACK[packed](content))

    with pytest.raises(
        TraceError, match=r"w:60002: a line of more than 16 MiB, which is no request"
    ):
        opened(path, skip_bad_rows=True)


def test_a_device_is_refused(tmp_path):
    link = tmp_path / "w"
    link.symlink_to("/dev/zero")

    with pytest.raises(TraceError, match="not a regular file"):
        opened(link)


def test_a_file_that_changes_between_the_two_readings_is_an_error(tmp_path):
    path = tmp_path / "w.csv"
    path.write_bytes((DATA / "vidur.csv").read_bytes())
    workload = opened(path)
    path.write_bytes(path.read_bytes() + b"9.0,1,1\n")

    with pytest.raises(TraceError, match="changed while it was read: 4 rows, 3 before"):
        list(workload)
