"""A grid of 100,000 plans through `kvplan sweep`, whole process, files included.

Usage: python benchmarks/sweep.py [--jobs 2] [--combinations 100000] [--json]
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT_S = 60.0  # 100,000 plans on two cores
SPEC = """\
model: [llama-3.1-8b, qwen3-next-80b-a3b, gpt-oss-120b, deepseek-v3.2, qwen3-235b-a22b]
gpu: [h100, h200, b200, mi300x]
server:
  tp_size: [1, 2, 4, 8]
  page_size: [1, 16, 32, 64]
  kv_cache_dtype: [auto, fp8_e4m3]
  mem_fraction_static: {{from: 0.8, to: 0.92, step: 0.03}}
  max_running_requests: {{from: 16, to: {most}, step: 16}}
columns: {columns}
"""
FIXED = 5 * 4 * 4 * 4 * 2 * 5
COLUMNS = {
    "sizes": "[tokens, full_context_requests, running_requests]",
    "sizes and bytes": "[tokens, full_context_requests, kv_bytes, headroom_bytes]",
}
RUN = """
import sys
from kvplan.commands.app import main
if __name__ == "__main__":
    code = main(sys.argv[1:])
    with open("/proc/self/status") as status:
        peak = next(line for line in status if line.startswith("VmHWM"))
    print(peak.split()[1], file=sys.stderr)
    sys.exit(code)
"""


def swept(
    folder: Path, columns: str, combinations: int, jobs: int, suffix: str
) -> dict[str, float]:
    """One run: its seconds, rows a second, the parent's peak memory and the file's size."""
    most = 16 * math.ceil(combinations / FIXED)
    spec, script, result = folder / "spec.yaml", folder / "run.py", folder / f"result{suffix}"
    spec.write_text(SPEC.format(most=most, columns=columns))
    script.write_text(RUN)
    argv = ["sweep", str(spec), "--jobs", str(jobs), "--output", str(result), "--quiet"]
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-P", str(script), *argv], capture_output=True, text=True, check=True
    )
    took = time.perf_counter() - start
    count = most // 16 * FIXED
    starts = re.match(r"([\d,]+) of ([\d,]+)", done.stdout)
    assert starts is not None
    return {
        "combinations": count,
        "start": int(starts[1].replace(",", "")),
        "seconds": round(took, 2),
        "rows_per_second": round(count / took),
        "peak_mib": round(int(done.stderr.split()[-1]) / 1024, 1),
        "file_kib": round(result.stat().st_size / 1024),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--combinations", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, columns in COLUMNS.items():
            for suffix in (".csv", ".parquet"):
                run = swept(Path(scratch), columns, options.combinations, options.jobs, suffix)
                rows.append({"columns": name, "form": suffix, "jobs": options.jobs, **run})
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            print(
                f"{row['columns']:<16} {row['form']:<9} {row['combinations']:>9,} combinations"
                f"  {row['seconds']:>6} s  {row['rows_per_second']:>7,} a second"
                f"  {row['peak_mib']} MiB  file {row['file_kib']:,} KiB  {row['start']:,} start"
            )
    limit_s = LIMIT_S * max(1, options.combinations / 100_000)
    return 0 if all(row["seconds"] <= limit_s for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
