"""Sizings a second of parsed inputs, provenance included, on one core; and the cost of ten times the stages.

Usage: python benchmarks/sizing.py [--count 5000] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import islice, product

from kvplan import catalog
from kvplan.errors import CombinationError
from kvplan.planner import Launch, plan
from kvplan.sizing.memory import MemoryInputs
from kvplan.spec.server import ServerArgs

LIMIT_PER_SECOND = 5_000
MODELS = (
    "llama-3.1-8b",
    "qwen3-next-80b-a3b",
    "deepseek-v3.2",
    "gpt-oss-120b",
    "deepseek-v4-flash",
    "nemotron-3-super-120b-a12b-fp8",
    "gemma-4-31b",
    "kimi-k2.5",
)
PAGES = (1, 16, 64)
FRACTIONS = tuple(round(0.7 + step / 100, 2) for step in range(25))
WIDTHS = (1, 2, 4, 8)


def launches(pp_size: int) -> list[Launch]:
    """A grid over models, widths, pages and fractions; presets parsed once."""
    gpu = catalog.load_gpu("h200")
    models = [catalog.load_model(name) for name in MODELS]
    memory = MemoryInputs(weights_gib=20.0)
    return [
        Launch(
            model,
            None,
            gpu,
            ServerArgs(tp_size=tp, pp_size=pp_size, page_size=page, mem_fraction_static=fraction),
            memory,
        )
        for fraction, page, tp, model in product(FRACTIONS, PAGES, WIDTHS, models)
    ]


def per_second(grid: list[Launch], count: int) -> float:
    """Launches sized in a second of one core's time, refused ones counted like the others."""
    todo = list(islice((launch for _ in range(count) for launch in grid), count))
    start = time.process_time()
    for launch in todo:
        try:
            plan(launch)
        except CombinationError:
            continue
    return count / (time.process_time() - start)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    one, ten = launches(1), launches(10)
    per_second(one, 500)
    rates = {
        "sizings_per_second": round(per_second(one, options.count)),
        "sizings_per_second_10_stages": round(per_second(ten, options.count // 10)),
    }
    rates["cost_of_10_stages"] = round(
        rates["sizings_per_second"] / rates["sizings_per_second_10_stages"], 2
    )
    if options.json:
        print(json.dumps(rates))
    else:
        for name, value in rates.items():
            print(f"{name.replace('_', ' ')}: {value:,}")
    return 0 if rates["sizings_per_second"] >= LIMIT_PER_SECOND else 1


if __name__ == "__main__":
    sys.exit(main())
