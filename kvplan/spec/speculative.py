"""Speculative decoding as a preset: an algorithm, its tree and the draft model."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from kvplan.spec.parallel import given
from kvplan.spec.server import Algorithm

Steps = Annotated[int, Meta(ge=0, le=4096)]
Width = Annotated[int, Meta(ge=1, le=4096)]


class SpeculativeSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one algorithm; what is left out stays with the engine."""

    speculative_algorithm: Algorithm
    speculative_num_steps: Steps | None = None
    speculative_eagle_topk: Width | None = None
    speculative_num_draft_tokens: Width | None = None
    speculative_dflash_block_size: Width | None = None
    speculative_dspark_block_size: Width | None = None
    speculative_ngram_max_bfs_breadth: Width | None = None
    draft: str | None = None  # a model by preset name, HF id or path
    note: str | None = None  # what it is for


def speculative_arguments(spec: SpeculativeSpec) -> dict[str, Any]:
    """The server arguments that the preset sets, and `draft` where it names one."""
    return given(spec)
