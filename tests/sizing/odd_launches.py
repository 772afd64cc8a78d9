"""Launches of every family, drawn at random: what starts, and what does not."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from kvplan import catalog
from kvplan.errors import CombinationError
from kvplan.sizing.budget import Memory
from kvplan.sizing.plan import NoStart, Plan, plan_launch
from kvplan.sizing.resolve.resolve import resolve
from kvplan.spec.gpu import GpuSpec
from kvplan.spec.model import Mha, ModelSpec, Sliding
from kvplan.spec.server import server_args
from tests.sizing.resolve.launches import B200, EAGLE, H100, MI300X, dense, hybrid, kimi

ALL_SLIDING = dense(
    "UnlimitedOCRForCausalLM",
    attention=Mha(num_kv_heads=8, head_dim=128, v_head_dim=128),
    sliding=Sliding(
        window=128, layers=tuple(range(32)), num_kv_heads=8, head_dim=128, v_head_dim=128
    ),
)
PRESETS = (
    "llama-3.1-8b", "deepseek-v3", "deepseek-v3.2", "glm-5.2", "gpt-oss-20b", "gemma-4-31b",
    "llama-4-scout-17b-16e-instruct", "mimo-v2-flash", "step-3.5-flash", "deepseek-v4-flash",
    "minimax-m3-nvfp4", "qwen3-next-80b-a3b", "falcon-h1-7b-instruct", "nemotron-h-8b-base-8k",
    "lfm2-1.2b", "kimi-linear-48b-a3b-instruct", "ring-mini-linear-2.0",
)  # fmt: skip
MADE = {
    "all sliding": ALL_SLIDING,
    "one full layer of four": hybrid(),
    "latent hybrid": kimi(),
}
NAMES = (*PRESETS, *MADE)


class Drawn(NamedTuple):
    """One launch, and the memory that it was drawn with."""

    model: ModelSpec
    gpu: GpuSpec
    memory: Memory
    args: dict[str, Any]

    def outcome(self, **changes: Any) -> Plan | NoStart | None:
        """What comes of it, with some arguments changed; None where the settings are refused."""
        given = {**self.args, **changes}
        args = server_args({name: value for name, value in given.items() if value is not None})
        try:
            resolved = resolve(args, self.model, self.gpu)
            return plan_launch(self.model, self.gpu, resolved, self.memory)
        except CombinationError:
            return None


def drawn(name: str, random: Random) -> Drawn:
    """A launch of one model: widths, speculation, caps, caches and memory at random."""
    pre = random.choice([20.0, 70.0, 170.0])
    args: dict[str, Any] = {
        "tp_size": random.choice([1, 2, 4, 8]),
        "pp_size": random.choice([1, 1, 2, 3]),
        "mem_fraction_static": random.choice([None, 0.3, 0.7, 0.9]),
        "max_running_requests": random.choice([None, 8, 500, 20000]),
        "max_mamba_cache_size": random.choice([None, None, 40, 100000]),
        "max_total_tokens": random.choice([None, None, 3000, 10**6]),
        "disable_radix_cache": random.choice([None, True]),
        "swa_full_tokens_ratio": random.choice([None, 0.01, 0.9]),
        "chunked_prefill_size": random.choice([None, 1024, 65536]),
        **random.choice([{}, {}, EAGLE]),
    }
    model = MADE[name] if name in MADE else catalog.load_model(name)
    memory = Memory(pre, pre * random.choice([0.05, 0.3, 0.6, 0.9]))
    return Drawn(model, random.choice([H100, H100, B200, MI300X]), memory, args)
