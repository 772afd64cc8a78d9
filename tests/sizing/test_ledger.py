"""The ledger adds up to the card, and its pools are the tensors."""

from __future__ import annotations

from random import Random

import pytest

from kvplan import catalog
from kvplan.errors import CombinationError
from kvplan.planner import Launch, plan
from kvplan.sizing.ledger import ledger
from kvplan.sizing.memory import MemoryInputs
from kvplan.sizing.plan import Plan
from kvplan.sizing.tensors import stage_tensors
from kvplan.spec.server import ServerArgs

MODELS = [name for name in catalog.names("model") if not name.startswith("draft-")]


def random_launch(name: str, random: Random) -> Launch:
    page = random.choice([1, 16, 64, 128])
    args = ServerArgs(
        tp_size=random.choice([1, 2, 4, 8]),
        pp_size=random.choice([1, 1, 2]),
        page_size=page,
        mem_fraction_static=random.choice([0.7, 0.85, 0.95]),
        disable_radix_cache=random.choice([True, False]),
        kv_cache_dtype=random.choice(["auto", "fp8_e4m3", "bf16"]),
    )
    memory = MemoryInputs(weights_gib=random.choice([3.0, 10.0, 20.0]))
    gpu = catalog.load_gpu(random.choice(["h100", "b200", "l40s"]))
    return Launch(catalog.load_model(name), None, gpu, args, memory)


@pytest.mark.parametrize("name", MODELS)
def test_entries_add_up_to_the_card(name: str):
    random = Random(name)
    planned = 0
    for _ in range(12):
        try:
            outcome = plan(random_launch(name, random)).outcome
        except CombinationError:
            continue
        if not isinstance(outcome, Plan):
            continue
        planned += 1
        for stage in outcome.stages:
            books = ledger(outcome, stage)

            assert books.total_bytes == outcome.gpu.memory_mib << 20
            assert sum(entry.num_bytes for entry in books.entries) == books.total_bytes
            in_books = sum(entry.num_bytes for entry in books.entries if entry.budgeted)
            beside = books.bytes_of("compression state") + books.bytes_of("draft KV")
            assert in_books == beside + sum(
                tensor.num_bytes
                for tensor in stage_tensors(outcome, stage)
                if tensor.pool != "rows" and tensor.name != "free_slots"
            )
    assert planned


def test_a_hybrid_latent_cache_in_fp4_takes_more_than_its_budget():
    launch = Launch(
        catalog.load_model("kimi-k3"),
        None,
        catalog.load_gpu("b200"),
        ServerArgs(tp_size=16, kv_cache_dtype="nvfp4", attention_backend="flashinfer"),
        MemoryInputs(weights_gib=60.0),
    )

    outcome = plan(launch).outcome

    assert isinstance(outcome, Plan)
    assert ledger(outcome, outcome.stages[0]).overrun_bytes > 10 << 30
