"""Whole-process start-up of the planning commands against bare typer, in one interleaved run.

Usage: python benchmarks/startup.py [--rounds 20] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

BASELINE = "import typer, yaml"
RUN = "from kvplan.commands.app import main; raise SystemExit(main({argv!r}))"
LIMITS = {"size --json": 1.35, "size": 1.8, "--help": 1.35}  # times the baseline
RSS_LIMIT_MIB = 32
COMMANDS = {
    "size --json": ["size", "llama-3.1-8b", "--gpu", "h100", "--json"],
    "size": ["size", "llama-3.1-8b", "--gpu", "h100"],
    "--help": ["--help"],
}
PEAK = """
import sys
try:
    {code}
finally:
    with open('/proc/self/status') as status:
        peak = next(line for line in status if line.startswith('VmHWM'))
    heavy = sorted({{'torch', 'numpy', 'pydantic', 'pandas'}} & set(sys.modules))
    print(peak.split()[1], *heavy, file=sys.stderr)
"""


def compiled(folder: str) -> dict[str, str]:
    """The environment of an installed program: every module's bytecode is at hand."""
    environment = {key: os.environ[key] for key in os.environ if key != "PYTHONDONTWRITEBYTECODE"}
    return environment | {"PYTHONPYCACHEPREFIX": folder}


def seconds(code: str, environment: dict[str, str]) -> float:
    """Wall time of one interpreter that runs `code`."""
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - start


def peak_rss(code: str, environment: dict[str, str]) -> tuple[float, list[str]]:
    """VmHWM of the process itself in MiB, and the heavy modules it loaded."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", PEAK.format(code=code)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    kib, *heavy = done.stderr.split("\n")[-2].split()
    return int(kib) / 1024, heavy


def measure(rounds: int, environment: dict[str, str]) -> tuple[float, list[dict[str, Any]]]:
    """Median seconds of the baseline, and a row a command; interleaved, bytecode warm."""
    codes = {"baseline": BASELINE}
    codes |= {name: RUN.format(argv=argv) for name, argv in COMMANDS.items()}
    for code in codes.values():
        seconds(code, environment)
    times: dict[str, list[float]] = {name: [] for name in codes}
    for _ in range(rounds):
        for name, code in codes.items():
            times[name].append(seconds(code, environment))
    base = statistics.median(times["baseline"])
    rows = []
    for name in COMMANDS:
        median = statistics.median(times[name])
        rss, heavy = peak_rss(codes[name], environment)
        rows.append(
            {
                "command": f"kvplan {name}",
                "ms": round(median * 1e3, 1),
                "ratio": round(median / base, 3),
                "limit": LIMITS[name],
                "rss_mib": round(rss, 1),
                "heavy_modules": heavy,
            }
        )
    return base, rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base, rows = measure(options.rounds, compiled(folder))
    if options.json:
        print(json.dumps({"baseline_ms": round(base * 1e3, 1), "commands": rows}, indent=2))
    else:
        print(f"baseline `{BASELINE}`: {base * 1e3:.1f} ms")
        for row in rows:
            print(
                f"{row['command']:<20} {row['ms']:>7} ms  × {row['ratio']:<6} (limit {row['limit']})"
                f"  {row['rss_mib']} MiB  {' '.join(row['heavy_modules'])}"
            )
    good = all(row["ratio"] <= row["limit"] and row["rss_mib"] <= RSS_LIMIT_MIB for row in rows)
    return 0 if good and not any(row["heavy_modules"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
