"""Each knob's answer holds, its neighbour does not, and trying every value finds no better one."""

from __future__ import annotations

import math
import time

import msgspec
import pytest

from kvplan.errors import InputError
from kvplan.planner import Launch, PlanInputs, plan, read_inputs
from kvplan.search.fit import Fit, Skipped, Trial, fit, tried
from kvplan.search.knobs import KNOBS, knob_named
from kvplan.search.target import Target
from kvplan.sizing.capacity import capacity_at
from kvplan.sizing.memory import MemoryInputs
from kvplan.sizing.plan import Plan
from kvplan.units import GIB
from tests.replay.plans import SECOND, burst

SECONDS = 1.0
LAUNCHES: dict[str, tuple[str, str, dict[str, object]]] = {
    "dense": ("llama-3.1-8b", "h100", {}),
    "sparse": ("glm-5", "b200", {"tp_size": 8}),
    "sliding": ("gpt-oss-120b", "h100", {"tp_size": 2}),
    "hybrid": ("qwen3-next-80b-a3b", "h100", {"tp_size": 4}),
    "draft": ("qwen3-next-80b-a3b", "h100", {"tp_size": 4, "speculative_algorithm": "NEXTN"}),
    "compressed": ("deepseek-v4-flash", "h200", {"tp_size": 4}),
    "stages": ("llama-3.1-70b", "h100", {"tp_size": 2, "pp_size": 2}),
}
TARGETS = {
    "tokens": Target(tokens=300_000),
    "requests": Target(requests=20, context=16_000),
    "length": Target(context=20_000),
    "spare": Target(tokens=1000, headroom_gib=9.0),
    "host": Target(host_tokens=2_000_000),
    "nothing helps": Target(tokens=10**11),
}


def planned(launch: Launch) -> Plan:
    outcome = plan(launch).outcome
    assert isinstance(outcome, Plan)
    return outcome


def read(
    model: str, gpu: str, server: dict[str, object], memory: MemoryInputs | None = None
) -> Launch:
    return read_inputs(
        PlanInputs(model=model, gpu=gpu, server=server, memory=memory or MemoryInputs())
    )


def answer(launch: Launch, target: Target, name: str, goal=None) -> Fit:
    found = fit(launch, target, knob_named(name), goal)
    assert isinstance(found, Fit), found
    return found


@pytest.mark.parametrize("launch", LAUNCHES)
@pytest.mark.parametrize("target", TARGETS)
def test_every_knob_answers_in_time_and_proves_it(launch, target):
    made = read(*LAUNCHES[launch])
    for knob in KNOBS:
        started = time.process_time()
        found = fit(made, TARGETS[target], knob)
        assert time.process_time() - started <= SECONDS, knob.name
        if isinstance(found, Skipped):
            assert found.reason
        elif found.found is None:
            assert found.reason
            assert not any(trial.holds for trial in found.neighbours)
        else:
            assert found.found.holds
            assert found.found.value in [trial.value for trial in found.neighbours]
            check_beyond(found)


def check_beyond(found: Fit) -> None:
    """The neighbour on the wanted side does not hold."""
    assert found.found is not None
    place = [trial.value for trial in found.neighbours].index(found.found.value)
    if found.goal in ("smallest", "first") and place:
        assert not found.neighbours[place - 1].holds
    if found.goal == "largest" and place + 1 < len(found.neighbours):
        assert not found.neighbours[place + 1].holds


@pytest.mark.parametrize("launch", ["sliding", "draft"])
@pytest.mark.parametrize("goal", ["smallest", "largest"])
@pytest.mark.parametrize(
    ("name", "target", "step"),
    [
        ("mem-fraction-static", Target(tokens=400_000), 1),
        ("mem-fraction-static", Target(requests=30, context=8000, headroom_gib=12.0), 1),
        ("max-running-requests", Target(requests=40, context=9000), 1),
        ("page-size", Target(tokens=300_000), 1),
        ("tp-size", Target(requests=20, context=32_000), 1),
        ("context-length", Target(requests=33), 16),
    ],
)
def test_no_value_is_missed(launch, goal, name, target, step):
    """Every value (of long rows every n-th) is tried; none beyond the answer holds."""
    made, knob = read(*LAUNCHES[launch]), knob_named(name)
    found = answer(made, target, name, goal)
    values = list(knob.values(made, planned(made)))[:1500:step]
    holding = [value for value in values if tried(knob, made, target, value).holds]

    if found.found is None:
        assert not holding
    elif goal == "smallest":
        assert all(value >= found.found.value for value in holding)
    else:
        assert all(value <= found.found.value for value in holding)


def test_the_fraction_is_what_arithmetic_says():
    memory = MemoryInputs(free_before_gib=78.81, free_after_gib=63.72)
    found = answer(
        read("llama-3.1-8b", "h100", {}, memory), Target(tokens=500_000), "mem-fraction-static"
    )
    needed = 1 - (63.72 - 500_000 * 131_072 / GIB) / 78.81

    assert found.found is not None
    assert found.found.value == math.ceil(needed * 1000) / 1000


def test_the_largest_context_is_the_tokens_over_the_requests():
    launch = read("llama-3.1-8b", "h100", {"max_total_tokens": 400_000})
    found = answer(launch, Target(requests=7), "context-length")

    assert found.found is not None
    assert found.found.value == 400_000 // 7


def test_requests_that_can_all_grow_to_a_length():
    launch = read("llama-3.1-8b", "h100", {"max_total_tokens": 400_000})
    found = answer(launch, Target(context=8192), "max-running-requests")

    assert found.found is not None
    assert found.found.value == 400_000 // 8192


def test_the_most_precise_cache_that_holds():
    launch = read("llama-3.1-8b", "b200", {})

    for tokens, recipe in ((1000, "bf16"), (1_500_000, "fp8_e4m3"), (2_600_000, "nvfp4")):
        found = answer(launch, Target(tokens=tokens), "kv-cache-dtype").found
        assert found is not None
        assert found.value == recipe


@pytest.mark.parametrize(
    ("launch", "name", "length"),
    [
        ("hybrid", "mamba-full-memory-ratio", 32_768),
        ("draft", "mamba-full-memory-ratio", 16_384),
        ("sliding", "swa-full-tokens-ratio", 32_768),
    ],
)
def test_a_balanced_ratio_fills_both_pools(launch, name, length):
    made = read(*LAUNCHES[launch])
    found = answer(made, Target(context=length), name)
    scarcest = {trial.value: min(rooms_of(trial, length)) for trial in found.neighbours}

    assert found.found is not None
    assert max(scarcest, key=lambda value: scarcest[value]) == found.found.value
    rooms = rooms_of(found.found, length)
    assert max(rooms) / min(rooms) < 1.1


def rooms_of(trial: Trial, length: int) -> list[float]:
    assert trial.plan is not None
    return list(Target(context=length).fills(trial.plan).values())


def test_fewest_gpus_come_with_their_widths():
    launch = read("llama-3.1-70b", "h100", {})
    found = answer(launch, Target(requests=4, context=32_768), "gpus")

    assert found.found is not None
    assert found.found.value == (4, 1)
    assert found.knob.flags(found.found.value) == "--tp-size 4 --pp-size 1"


def test_a_host_tier_is_sized_in_whole_gigabytes():
    found = answer(read("llama-3.1-8b", "h100", {}), Target(host_tokens=10**6), "hicache-size")

    assert found.found is not None
    assert found.found.value == math.ceil(10**6 * 131_072 / 1e9)


def test_where_no_value_holds_the_nearest_is_named():
    launch = read("llama-3.1-8b", "h100", {})
    found = answer(launch, Target(tokens=10**9), "mem-fraction-static")

    assert found.found is None
    assert str(found.reason).startswith("at best 0.987: 51")
    assert str(found.reason).endswith("of 1,000,000,000 tokens")


def test_where_nothing_starts_the_shortage_is_named():
    found = answer(read("llama-3.1-70b", "h100", {}), Target(tokens=1000), "mem-fraction-static")

    assert found.reason == "no value starts; at 0.999: the weights leave -52.45 GiB for KV"


@pytest.mark.parametrize(
    ("model", "server", "memory", "name", "reason"),
    [
        ("llama-3.1-8b", {}, {}, "swa-ratio", "'llama-3.1-8b' has no sliding pool"),
        ("llama-3.1-8b", {}, {}, "mamba-ratio", "'llama-3.1-8b' keeps no recurrent state"),
        ("llama-3.1-8b", {}, {}, "hicache-size", "it needs a target on the host"),
        ("llama-3.1-8b", {}, {"weights_gib": 15.0}, "tp", "the weights are measured for one width"),
        ("qwen3.5-35b-a3b", {"max_mamba_cache_size": 64}, {}, "mamba-ratio", "--max-mamba-cache-size"),
        ("llama-3.1-8b", {"pp_size": 2, "pp_layer_partition": [16, 16]}, {}, "gpus", "the launch names the layers"),
    ],
)  # fmt: skip
def test_a_knob_without_a_say_is_passed_over(model, server, memory, name, reason):
    launch = read(model, "h100", server, MemoryInputs(**memory))
    found = fit(launch, Target(tokens=1000), knob_named(name))

    assert isinstance(found, Skipped)
    assert found.reason.startswith(reason)


def test_an_unknown_knob_is_refused_with_the_nearest():
    with pytest.raises(InputError) as caught:
        knob_named("--mem-fraction")

    assert caught.value.hint == "did you mean 'mem-fraction-static'?"


def test_a_workload_is_served_from_the_answer_on():
    server: dict[str, object] = {"max_total_tokens": 60_000, "context_length": 4096}
    launch = read("llama-3.1-8b", "h100", server)
    requests = burst(200, 300, 400, SECOND // 50)
    target = Target(workload=requests)
    found = answer(launch, target, "max-running-requests")

    assert found.found is not None
    assert found.found.plan is not None
    assert target.miss(found.found.plan) is None


def test_a_workload_that_needs_a_longer_context_gets_it():
    launch = read("llama-3.1-8b", "h100", {})
    requests = burst(4, 5000, 10, SECOND)
    found = answer(launch, Target(workload=requests), "context-length", "smallest")

    assert found.found is not None
    assert 5000 < found.found.value < 5100
    assert "rejected" in str(found.neighbours[0].miss)


def test_misses_name_the_condition_that_is_furthest():
    made = planned(read("llama-3.1-8b", "h100", {}))
    target = Target(tokens=2 * made.tokens, requests=100, headroom_gib=1.0)
    miss = target.miss(made)

    assert capacity_at(made, 131_072).requests == 3
    assert miss is not None
    assert miss.text == "3 of 100 requests (tokens)"
    assert Target(tokens=made.tokens).miss(made) is None
    assert " tokens" in str(msgspec.structs.replace(target, requests=None).miss(made))
