"""Times replays: millions of requests over counts, a prefix cache under load, real pools.

    python benchmarks/replay.py [--shared ../shared] [--requests 1000000] [--json FILE]

The Azure and Mooncake samples are read from `--shared`; without them shapes like theirs are drawn.
A scaled run is one process each, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from kvplan.planner import PlanInputs, plan, read_inputs
from kvplan.replay.assumptions import Assumptions
from kvplan.replay.requests import BlockIds, Request
from kvplan.replay.run import ReplayOptions, replay
from kvplan.replay.workloads.workload import open_workload
from kvplan.sizing.plan import Plan

AZURE = "facts/traces/azure2023_conv.csv"
MOONCAKE = "facts/traces/mooncake_conversation_trace.jsonl"
SCALES = (10_000, 100_000, 1_000_000)
BATCH = 64


def main() -> None:
    """Run every benchmark and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--requests", type=int, default=SCALES[-1])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    results: list[dict[str, Any]] = []
    for count in (*(scale for scale in SCALES if scale < given.requests), given.requests):
        results.append(alone(partial(azure, given.shared, count)))
        show(results[-1])
    first, last = results[0], results[-1]
    growth = last["cpu_seconds"] / first["cpu_seconds"] / (last["requests"] / first["requests"])
    print(f"cost of {last['requests']:,} against {first['requests']:,}: {growth:.2f} x linear")
    results.append(alone(partial(mooncake, given.shared)))
    show(results[-1])
    for page_size in (1, 16, 64):
        for watched in (True, False):
            results.append(alone(partial(pools, page_size, watched=watched)))
            show(results[-1])
    if has_cuda():
        for page_size in (1, 16, 64):
            results.append(alone(partial(pools, page_size, watched=False, device="cuda")))
            show(results[-1])
    if given.json is not None:
        given.json.write_text(json.dumps(results, indent=2) + "\n")


def alone(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """One benchmark in a fresh process, with that process's peak memory."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=measured, args=(run, sender))
    process.start()
    result: dict[str, Any] = receiver.recv()
    process.join()
    return result


def measured(run: Callable[[], dict[str, Any]], sender: Any) -> None:
    """What runs in the process."""
    result = run()
    result["peak_mib"] = round(peak_mib(), 1)
    sender.send(result)


def peak_mib() -> float:
    """Peak resident memory of this process alone."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def azure(shared: Path, count: int) -> dict[str, Any]:
    """The Azure conversation shape, its sample repeated, over counts."""
    requests = repeated(azure_shape(shared), count)
    return counted("azure conversation", launch(), requests)


def mooncake(shared: Path) -> dict[str, Any]:
    """The Mooncake conversation sample with its prefix cache, over counts."""
    file = shared / MOONCAKE
    requests = iter(open_workload(file)) if file.is_file() else mooncake_shape()
    server = {"max_total_tokens": 2_000_000, "tp_size": 4}
    return counted("mooncake conversation", launch(**server), requests)


def counted(name: str, planned: Plan, requests: Iterator[Request]) -> dict[str, Any]:
    """One replay over counts."""
    start, start_cpu = time.perf_counter(), time.process_time()
    result = replay(planned, requests, ReplayOptions(assumptions=Assumptions()))
    took, cpu = time.perf_counter() - start, time.process_time() - start_cpu
    return {
        "name": name,
        "engine": "accounting",
        "requests": result.num_requests,
        "seconds": round(took, 3),
        "cpu_seconds": round(cpu, 3),  # of the one core, whatever else the machine does
        "requests_per_s": round(result.num_requests / took),
        "steps": result.num_steps,
        "hit_rate": round(result.hit_rate, 6),
        "peak_occupancy": round(result.peak_occupancy, 4),
        "retractions": result.num_retractions,
    }


def has_cuda() -> bool:
    """Whether torch is installed and finds a GPU."""
    try:
        import torch
    except ModuleNotFoundError:
        return False
    return torch.cuda.is_available()


def pools(page_size: int, *, watched: bool, device: str = "cpu") -> dict[str, Any]:
    """Real pools at a batch of 64: allocations a second, from request to request.

    On a GPU also the share of the time that its kernels take.
    """
    import torch

    from kvplan.pools.build import build
    from kvplan.replay.pools.assembly import assemble
    from kvplan.replay.pools.devices import one_thread, place_named
    from kvplan.replay.replay import Replay
    from kvplan.replay.run import Driver
    from kvplan.replay.settings import server_of
    from kvplan.replay.trace import PoolOptions

    planned = launch(max_running_requests=BATCH, page_size=page_size)
    server = server_of(planned)
    built = build(planned, device, kv_scale=True)
    assembly = assemble(server, built, place_named(device), PoolOptions())
    requests = (
        Request(rid=str(number), t_ns=0, input_len=1024, output_len=256)
        for number in range(10 * BATCH)
    )
    memory = assembly.memory if watched else assembly.memory.inner
    run = Replay(server, memory, requests, Assumptions(), jumps=False)
    driver = Driver(run, observers=assembly.observers if watched else ())
    activities = [torch.profiler.ProfilerActivity.CUDA] if device != "cpu" else []
    profiled = torch.profiler.profile(activities=activities) if activities else nullcontext()
    start = time.perf_counter()
    with one_thread(), profiled:
        driver.go()
        if activities:
            torch.cuda.synchronize()
        took = time.perf_counter() - start
    decoded_tokens = run.meter.output_tokens - run.meter.num_finished  # prefill brings the first
    tokens = run.meter.computed_tokens + decoded_tokens
    return {
        "name": f"pools, {device}, page {page_size}, {'verified' if watched else 'bare'}",
        "engine": "pools",
        "requests": run.meter.num_requests,
        "seconds": round(took, 3),
        "tokens": tokens,
        "tokens_per_s": round(tokens / took),
        "steps_per_s": round(driver.gauges.num_steps / took),
        "kernel_share": kernel_seconds(profiled) / took if activities else None,
        "torch": torch.__version__,
    }


def kernel_seconds(profiled: Any) -> float:
    """Time of all kernels in a profile, in seconds."""
    return sum(float(each.self_device_time_total) for each in profiled.key_averages()) / 1e6


def launch(**server: Any) -> Plan:
    """Llama-3.1-8B on an H100."""
    outcome = plan(read_inputs(PlanInputs(model="llama-3.1-8b", gpu="h100", server=server))).outcome
    assert isinstance(outcome, Plan)
    return outcome


def azure_shape(shared: Path) -> list[Request]:
    """The sample's requests, or 19,366 drawn ones like them."""
    file = shared / AZURE
    if file.is_file():
        return list(open_workload(file))
    random, now = Random(1), 0.0
    drawn = []
    for number in range(19_366):
        drawn.append(
            Request(
                rid=str(number),
                t_ns=int(now * 1e9),
                input_len=min(14_050, max(2, round(random.lognormvariate(6.7, 0.9)))),
                output_len=min(1000, max(6, round(random.lognormvariate(5.0, 0.8)))),
            )
        )
        now += random.expovariate(5.53)
    return drawn


def repeated(shape: list[Request], count: int) -> Iterator[Request]:
    """The shape again and again, each time after the one before."""
    span = shape[-1].t_ns + 1_000_000_000
    for number in range(count):
        round_, at = divmod(number, len(shape))
        each = shape[at]
        yield msgspec.structs.replace(each, rid=str(number), t_ns=each.t_ns + round_ * span)


def mooncake_shape() -> Iterator[Request]:
    """Conversations over 512-token blocks, about as many and as long as the sample's."""
    random, fresh = Random(1), 1
    chats: list[tuple[int, ...]] = [(0,)] * 400
    for number in range(12_031):
        chat = random.randrange(len(chats))
        added = max(1, round(random.lognormvariate(2.2, 1.0)))
        ids = (*chats[chat], *range(fresh, fresh + added))
        fresh += added
        chats[chat] = ids if len(ids) < 240 else (0,)
        yield Request(
            rid=str(number),
            t_ns=number * 294_000_000,
            input_len=len(ids) * 512,
            output_len=max(1, min(2000, round(random.lognormvariate(5.6, 0.7)))),
            identity=BlockIds(ids=ids, block_size=512),
        )


def show(result: dict[str, Any]) -> None:
    """One line."""
    figures = [f"{result['requests']:>9,} requests", f"{result['seconds']:8.2f} s"]
    figures.append(f"{result['peak_mib']:6.0f} MiB")
    if "cpu_seconds" in result:
        figures.append(f"{result['cpu_seconds']:8.2f} s CPU")
    if "tokens_per_s" in result:
        figures.append(f"{result['tokens_per_s']:>9,} tokens/s, {result['steps_per_s']:,} steps/s")
    else:
        figures.append(f"{result['requests_per_s']:>9,} requests/s, {result['steps']:,} steps")
    if result.get("kernel_share") is not None:
        figures.append(f"{result['kernel_share']:.0%} in kernels")
    print(f"{result['name']:<30}", " ".join(figures), flush=True)


if __name__ == "__main__":
    main()
