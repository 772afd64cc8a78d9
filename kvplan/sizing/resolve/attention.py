"""What reads and writes the cache: backends, page size, dtype and the state strategy together."""

from __future__ import annotations

import msgspec

from kvplan.sizing.provenance import Origin, given
from kvplan.sizing.resolve import backends as choose
from kvplan.sizing.resolve.backends import Backends
from kvplan.sizing.resolve.disaggregation import radix_cache
from kvplan.sizing.resolve.dsa import dsa_backends, raw_layout
from kvplan.sizing.resolve.kv_dtype import asked_dtype
from kvplan.sizing.resolve.launch import Launch
from kvplan.sizing.resolve.mamba import state_cache
from kvplan.sizing.resolve.page_size import backend_page, model_page
from kvplan.sizing.resolve.parallel import Layout
from kvplan.sizing.resolve.refusals import (
    check_backends,
    check_model,
    check_recipe,
    nvfp4_backends,
)
from kvplan.sizing.resolved import MambaStrategy

OVERLAP = Origin("default", "overlap")
OVERLAP_STATES = Origin("derived", "overlap", "plain states are cached without it")
RADIX_DETERMINISTIC = Origin("derived", "deterministic", "no reproducible radix cache there")


class Attention(msgspec.Struct, frozen=True):
    """Settled backends and everything that hangs on them; dtype is the engine's word, or auto."""

    backends: Backends
    page: int
    dtype: str
    raw_layout: bool
    strategy: MambaStrategy | None
    radix: bool
    overlap: bool


def settle_attention(launch: Launch, layout: Layout, origins: dict[str, Origin]) -> Attention:
    """Model rules first, then states, then the card's defaults and what they force."""
    args = launch.args
    radix, origins["radix_cache"] = radix_cache(args)
    asked = choose.asked_backends(launch)
    dtype, origins["kv_cache_dtype"] = asked_dtype(launch)
    backends, by_model = choose.model_backends(launch, asked, args.page_size, radix)
    page, page_origin = model_page(launch, asked, backends)
    raw = False
    if launch.dsa:
        readers = dsa_backends(launch, dtype, layout.dcp)
        raw, origins["dsa_raw_layout"] = raw_layout(launch, readers)
    check_model(launch, layout, backends)

    overlap = not args.disable_overlap_schedule
    origins["overlap_schedule"] = given(args.disable_overlap_schedule, default=OVERLAP)
    states = state_cache(launch, backends, page, radix, overlap)
    origins["mamba_strategy"] = states.origin
    if states.disables_overlap and overlap:
        overlap, origins["overlap_schedule"] = False, OVERLAP_STATES

    if args.enable_deterministic_inference:
        backends = choose.deterministic(launch, backends)
        if radix and backends.base not in choose.DETERMINISTIC_RADIX:
            radix, origins["radix_cache"] = False, RADIX_DETERMINISTIC
    backends = nvfp4_backends(launch, backends)
    backends, origin = choose.default_backend(launch, backends, page, by_model)
    check_backends(launch, layout, backends, dtype)
    backends, origins["attention_backend"] = choose.after_default(launch, backends, asked, origin)
    page, origins["page_size"] = backend_page(launch, backends, page, page_origin)
    check_recipe(launch, backends, dtype)
    return Attention(backends, page, dtype, raw, states.strategy, radix, overlap)
