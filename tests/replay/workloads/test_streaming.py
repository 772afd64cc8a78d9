"""Memory while reading: it does not grow with the file."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

PEAK_MIB = """
import sys
from kvplan.replay.workloads.summary import summarize
from kvplan.replay.workloads.workload import open_workload
found = summarize(open_workload(sys.argv[1]))
assert not {"torch", "numpy", "pandas"} & set(sys.modules)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(found.kept, int(peak.split()[1]) // 1024)
"""


def azure(path: Path, num_rows: int, shuffled: bool = False) -> Path:
    """An Azure file of `num_rows` rows, 10 a second; or with its second half first."""
    rows = range(num_rows)
    order = [*rows[num_rows // 2 :], *rows[: num_rows // 2]] if shuffled else rows
    with path.open("w") as file:
        file.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
        for number in order:
            second = number // 10
            file.write(
                f"2024-05-{1 + second // 86400:02} {second // 3600 % 24:02}:{second // 60 % 60:02}:"
                f"{second % 60:02}.{number % 10}00000+00:00,{number % 5000 + 1},{number % 800 + 1}\n"
            )
    return path


def peak_mib(path: Path, num_rows: int) -> int:
    out = subprocess.run(
        [sys.executable, "-P", "-c", PEAK_MIB, str(path)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    kept, mib = map(int, out.split())
    assert kept == num_rows
    return mib


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_ten_times_the_rows_take_no_more_memory(tmp_path):
    small = peak_mib(azure(tmp_path / "small.csv", 30_000), 30_000)
    large = peak_mib(azure(tmp_path / "large.csv", 300_000), 300_000)

    assert large <= small + 4


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_rows_far_out_of_order_are_sorted_within_the_memory_allowed(tmp_path):
    assert peak_mib(azure(tmp_path / "w.csv", 500_000, shuffled=True), 500_000) <= 120


ROW = b'{"timestamp": 0, "input_length": 1, "output_length": 1'


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    "content",
    [
        ROW + b"}" + b"\n" * (48 << 20),
        ROW + b', "x": [' + b"[]," * (4 << 20) + b"1]}",
    ],
    ids=["blank lines", "one wide row"],
)
@pytest.mark.parametrize("packed", [gzip.compress, zstandard.ZstdCompressor(level=19).compress])
def test_a_small_file_that_unpacks_to_much_takes_little_memory(tmp_path, content, packed):
    path = tmp_path / "w"
    path.write_bytes(packed(content))

    assert path.stat().st_size < 100_000
    assert peak_mib(path, 1) <= 200


@pytest.mark.nightly
@pytest.mark.parametrize("shuffled", [False, True])
def test_five_million_rows_are_read_in_bounded_memory(tmp_path, shuffled):
    path = azure(tmp_path / "w.csv", 5_000_000, shuffled)

    assert peak_mib(path, 5_000_000) <= (150 if shuffled else 40)
