"""One pool for every layer: the tokens that fit a budget."""

from __future__ import annotations

from kvplan.sizing.cell import Cell, dense_cell
from kvplan.sizing.stage import Stage
from kvplan.units import floor_page

INT64_MAX = 2**63 - 1


def stage_cell(stage: Stage) -> Cell:
    """Bytes of one token of this stage."""
    return dense_cell(stage)


def split_budget(stage: Stage, budget_bytes: int) -> int:
    """Tokens in whole pages."""
    cell = dense_cell(stage).num_bytes
    if stage.resolved.kv_shards > 1:
        from kvplan.sizing.sharding import scratch_bytes

        budget_bytes = max(budget_bytes - scratch_bytes(stage), 0)
    return resize(stage, int(budget_bytes // cell) if cell else tokens_without_kv(stage))


def resize(stage: Stage, tokens: int) -> int:
    """Tokens in whole pages once a bound is known."""
    return floor_page(tokens, stage.resolved.page_size)


def tokens_without_kv(stage: Stage) -> int:
    """A stage without attention layers bounds nothing; a model without any takes its context."""
    linear, resolved = stage.model.linear, stage.resolved
    if linear is not None and linear.full_attention_layers and resolved.widths.pp > 1:
        return INT64_MAX
    return resolved.max_total_tokens or resolved.context_length
