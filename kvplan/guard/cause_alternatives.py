"""Differences that another rule would explain: each is tried, and the first that gives the log's figures is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from kvplan.guard.cause_case import READ_AGAIN_GIB, Case
from kvplan.guard.log_figures import Figures, draft_figures, target_figures
from kvplan.guard.log_rows import Cause, Row
from kvplan.guard.log_sizing import Sizing
from kvplan.sizing.layout import ELEMENT_BYTES
from kvplan.sizing.resolved import Speculation
from kvplan.units import GIB

WIDTHS = (1, 2, 4, 8, 16, 32)
PAGES = (1, 16, 32, 64, 128, 256)
FLAGS = {"bfloat16": "bf16", "float8_e4m3fn": "fp8_e4m3"}

Other = tuple[str, Sizing]


class Alternative(msgspec.Struct, frozen=True):
    """A rule that another launch or version would follow, and the sizings that it would give."""

    name: str
    others: Callable[[Case], Iterator[Other]]


def other_cache_dtype(case: Case) -> Iterator[Other]:
    own = case.sizing.resolved.kv_cache_dtype
    if case.log.value("kv_dtype") in {own, f"torch.{own}"}:
        return
    for dtype, flag in FLAGS.items():
        if case.sizing.resolved.kv_recipe or ELEMENT_BYTES[dtype] != ELEMENT_BYTES[own]:
            text = f"the log's cache is stored in {dtype}, the plan's in {own}: --kv-cache-dtype {flag}"
            yield text, case.sizing.changed(kv_cache_dtype=dtype, kv_recipe=None)


def index_keys_of_all_layers(case: Case) -> Iterator[Other]:
    model = case.sizing.model
    if model.indexer is not None and model.indexer.shared_topk_layers:
        own = msgspec.structs.replace(model.indexer, shared_topk_layers=())
        model = msgspec.structs.replace(model, indexer=own)
        text = "that version keeps index keys for the layers that share another's top-k as well"
        yield text, msgspec.structs.replace(case.sizing, model=model)


def other_latent_layout(case: Case) -> Iterator[Other]:
    resolved = case.sizing.resolved
    if case.sizing.model.indexer is not None and resolved.kv_cache_dtype == "float8_e4m3fn":
        kept = "packed with their scales" if resolved.dsa_raw_layout else "raw, without scales"
        text = f"the log's attention back end keeps fp8 latents {kept}"
        yield text, case.sizing.changed(dsa_raw_layout=not resolved.dsa_raw_layout)


def other_width(case: Case) -> Iterator[Other]:
    widths = case.sizing.resolved.widths
    for ranks in WIDTHS:
        if ranks != widths.attn_tp:
            text = f"the log's pools are those of {ranks} attention ranks, the plan has {widths.attn_tp}: check --tp-size"
            yield text, case.sizing.changed(widths=msgspec.structs.replace(widths, attn_tp=ranks))


def other_state_dtype(case: Case) -> Iterator[Other]:
    linear = case.sizing.model.linear
    if linear is not None:
        own = case.sizing.resolved.mamba_ssm_dtype or linear.ssm_dtype
        for dtype in ("float32", "bfloat16"):
            if dtype != own:
                text = f"the log's recurrent state is {dtype}, the plan's {own}: --mamba-ssm-dtype {dtype}"
                yield text, case.sizing.changed(mamba_ssm_dtype=dtype)


def logged_state_slots(case: Case) -> Iterator[Other]:
    if case.slots and case.logged_slots:
        slots = case.slots * case.sizing.resolved.widths.attn_dp
        text = f"the log's {case.slots:,} state slots leave KV another share of the memory"
        yield text, case.sizing.changed(max_mamba_cache_size=slots)


def logged_pool_ratio(case: Case) -> Iterator[Other]:
    sliding = case.log.value("swa_layer_tokens") or case.log.value("swa_size")
    if case.sizing.model.sliding is None or not sliding or not case.tokens:
        return
    ratio = (sliding + 0.5) / case.tokens
    own = case.sizing.resolved.swa_full_tokens_ratio
    text = f"the log's pools stand {sliding / case.tokens:.4g} to 1, the plan's {own:g} to 1: --swa-full-tokens-ratio"
    yield text, case.sizing.changed(swa_full_tokens_ratio=ratio, radix_cache=True)


def other_page_size(case: Case) -> Iterator[Other]:
    for page in PAGES if case.sizing.model.compressed is None else ():
        if page != case.sizing.resolved.page_size and not (case.tokens or 1) % page:
            text = f"the log's pages hold {page} tokens, the plan's {case.sizing.resolved.page_size}: --page-size {page}"
            yield text, case.sizing.changed(page_size=page)


def nothing_for_images(case: Case) -> Iterator[Other]:
    reserved = case.sizing.resolved.multimodal_reservation_mib
    if reserved:
        text = f"the log's server reserves nothing for images, the plan {reserved} MiB: an older version, or text alone"
        yield text, case.sizing.changed(multimodal_reservation_mib=0)


def draft_uncounted(case: Case) -> Iterator[Other]:
    if case.sizing.resolved.speculation.algorithm is not None:
        text = "that version does not count the draft's KV among the bytes of a token"
        yield text, case.sizing.changed(speculation=Speculation())


# what changes how tokens are stored, and what only changes how many the memory holds
OF_LAYOUT = (
    Alternative("kv_cache_dtype", other_cache_dtype),
    Alternative("index_keys_kept", index_keys_of_all_layers),
    Alternative("latent_layout", other_latent_layout),
    Alternative("swa_ratio", logged_pool_ratio),
    Alternative("state_dtype", other_state_dtype),
    Alternative("parallel_width", other_width),
    Alternative("page_size", other_page_size),
)
STATE_SLOTS = Alternative("state_slots", logged_state_slots)
OF_MEMORY = (
    Alternative("image_reservation", nothing_for_images),
    STATE_SLOTS,
    Alternative("draft_uncounted", draft_uncounted),
)


def layout_cause(case: Case, stored: Sequence[Row]) -> dict[Row, Cause]:
    """The alternative that brings most of the differing figures of the pools to what the log printed.

    One that moves a figure which agrees is none.
    """
    best: dict[Row, Cause] = {}
    differing = [row for row in stored if not row.within]
    for alternative in OF_LAYOUT if differing and case.tokens is not None else ():
        for text, other in alternative.others(case):
            given = gives_of(case, other, stored)
            found = {row: Cause(alternative.name, text) for row in given if not row.within}
            keeps = sum(row.within for row in stored) == len(given) - len(found)
            best = found if keeps and len(found) > len(best) else best
    return best


def gives_of(case: Case, other: Sizing, stored: Sequence[Row]) -> list[Row]:
    """The rows whose printed figure another rule gives for the log's own tokens."""
    plan = None if case.tokens is None else other.at_tokens(case.tokens, case.slots)
    if plan is None:
        return []
    target, draft = target_figures(plan, plan.stages[0]), draft_figures(plan, plan.stages[0])
    return [row for row in stored if gives(draft if row.figure.draft else target, row)]


def gives(figures: Figures, row: Row) -> bool:
    """Whether a figure of another sizing is what the log printed."""
    if row.name not in figures:
        return False
    value = figures[row.name]
    return msgspec.structs.replace(row, low=value, high=value).within


def memory_cause(case: Case, row: Row, stored: Sequence[Row]) -> Cause | None:
    """The alternative under which the measured memory gives the log's tokens or slots.

    One that stores tokens otherwise must give the `stored` figures, those of the log's own tokens, too.
    """
    for alternative in (*OF_MEMORY, *OF_LAYOUT):
        if alternative is STATE_SLOTS and row.name == "max_mamba_cache_size":
            continue
        for text, other in alternative.others(case):
            if alternative in OF_LAYOUT and len(gives_of(case, other, stored)) < len(stored):
                continue
            if allows(case, other, row):
                return Cause(alternative.name, text)
    return None


def allows(case: Case, other: Sizing, row: Row) -> bool:
    """Whether the measured memory gives the log's figure under another rule."""
    least, most = (other.in_memory(memory) for memory in (case.least, case.most))
    if least is None or most is None:
        return False
    low, high = (target_figures(plan, plan.stages[0])[row.name] for plan in (least, most))
    cell = least.stages[0].pool.cell.num_bytes
    spare = READ_AGAIN_GIB * GIB / cell if cell else 0
    return bool(low - spare <= row.observed <= high)
