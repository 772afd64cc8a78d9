"""What the rules read: the arguments, the model, its draft and the card."""

from __future__ import annotations

from typing import Literal

import msgspec

from kvplan.spec.gpu import GpuSpec
from kvplan.spec.model import Mla, ModelSpec
from kvplan.spec.server import ServerArgs

Family = Literal["hip", "older", "sm80", "sm90", "sm100", "sm110", "sm120"]

FAMILIES: dict[int, Family] = {8: "sm80", 9: "sm90", 10: "sm100", 11: "sm110", 12: "sm120"}
BLACKWELL: frozenset[Family] = frozenset({"sm100", "sm110", "sm120"})


class Launch(msgspec.Struct, frozen=True):
    """The inputs of a resolution and what many rules ask of them."""

    args: ServerArgs
    model: ModelSpec
    draft: ModelSpec | None
    gpu: GpuSpec
    family: Family
    mla: bool  # latent attention; DeepSeek-V4's compressed attention is not
    dsa: bool
    multimodal: bool  # served so, which is less than having a vision tower


def launch_of(args: ServerArgs, model: ModelSpec, gpu: GpuSpec, draft: ModelSpec | None) -> Launch:
    """Gather the inputs of one resolution."""
    return Launch(
        args=args,
        model=model,
        draft=draft,
        gpu=gpu,
        family="hip" if gpu.sm is None else FAMILIES.get(gpu.sm // 10, "older"),
        mla=model.compressed is None and isinstance(model.attention, Mla),
        dsa=model.indexer is not None,
        multimodal=served_multimodal(args, model),
    )


def served_multimodal(args: ServerArgs, model: ModelSpec) -> bool:
    """Whether the engine serves images: some models with a vision tower only when asked to."""
    if args.enable_multimodal is None:
        return model.multimodal
    return args.enable_multimodal and (model.multimodal or model.vision is not None)
