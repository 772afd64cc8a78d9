"""What the cache stores: the storage dtype and the block-scaled recipe."""

from __future__ import annotations

from typing import cast

from kvplan.errors import CombinationError
from kvplan.sizing.provenance import GIVEN, Origin
from kvplan.sizing.resolve import architectures as arch
from kvplan.sizing.resolve.launch import BLACKWELL, Launch
from kvplan.sizing.resolved import KvDtype, KvRecipe

STORAGE: dict[str, KvDtype] = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "mxfp8": "float8_e4m3fn",
    "nvfp4": "float4_e2m1fn_x2",
    "fp4_mx_block16": "float4_e2m1fn_x2",
}
RECIPES = ("mxfp8", "nvfp4", "fp4_mx_block16")
FP4 = ("nvfp4", "fp4_mx_block16")
LAUNCH_DTYPES: dict[str, KvDtype] = {
    "half": "float16",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float": "float32",
    "float32": "float32",
}
DSA_DTYPES = ("bfloat16", "fp8_e4m3")
COMPRESSED_DTYPES = ("fp8_e4m3", "bfloat16")  # not `bf16`: the engine compares the word itself

BY_MODEL = Origin("default", "kv-dtype-by-model")


def asked_dtype(launch: Launch) -> tuple[str, Origin]:
    """The engine's word for the cache dtype; `auto` where neither launch nor model has one."""
    asked = launch.args.kv_cache_dtype
    if launch.model.compressed is not None:
        return compressed_dtype(asked), GIVEN if asked not in (None, "auto") else BY_MODEL
    if launch.dsa:
        return dsa_dtype(launch)
    if asked is not None and asked != "auto":
        return asked, GIVEN
    if launch.model.architecture in arch.MUSE_SPARK:
        return "fp8_e4m3", BY_MODEL
    return "auto", Origin("default", "kv-dtype-auto", "the model's own")


def compressed_dtype(asked: str | None) -> str:
    """DeepSeek-V4 stores fp8 rows, or bfloat16 when asked in full."""
    word = "fp8_e4m3" if asked is None or asked == "auto" else asked
    if word not in COMPRESSED_DTYPES:
        raise CombinationError(
            f"kv_cache_dtype {word} is not served for DeepSeek-V4",
            hint=f"one of: auto, {', '.join(COMPRESSED_DTYPES)}",
        )
    return word


def dsa_dtype(launch: Launch) -> tuple[str, Origin]:
    """DSA caches bf16, or fp8 where it is asked for or the card is Blackwell."""
    asked, sinks = launch.args.kv_cache_dtype, launch.model.attention_sinks
    if asked is None or asked == "auto":
        blackwell = launch.family in BLACKWELL and not sinks
        word = "fp8_e4m3" if blackwell else "bfloat16"
        hip = launch.family == "hip"
        return word, Origin("default", "kv-dtype-dsa", "{0}", (launch.family,), assumed=hip)
    word = "bfloat16" if asked == "bf16" else asked
    if word not in DSA_DTYPES or (sinks and word != "bfloat16"):
        raise CombinationError(
            f"kv_cache_dtype {asked} is not served for sparse attention (DSA)",
            hint="use bfloat16" if sinks else "one of: auto, bf16, bfloat16, fp8_e4m3",
        )
    return word, GIVEN


def storage(launch: Launch, word: str, origin: Origin) -> tuple[KvDtype, KvRecipe | None, Origin]:
    """Storage dtype and recipe of the target's cache."""
    if word != "auto":
        recipe = cast("KvRecipe", word) if word in RECIPES else None
        return STORAGE[word], recipe, origin
    if launch.model.kv_cache_dtype is not None:
        formula = "the checkpoint's own {0} scales"
        found = Origin("default", "kv-dtype-auto", formula, (launch.model.kv_cache_dtype,))
        return STORAGE[launch.model.kv_cache_dtype], None, found
    return model_dtype(launch, draft=False), None, origin


def model_dtype(launch: Launch, *, draft: bool) -> KvDtype:
    """What the model computes in, where the launch's dtype does not say otherwise."""
    model = launch.draft if draft and launch.draft is not None else launch.model
    return LAUNCH_DTYPES.get(launch.args.dtype or "auto", model.dtype)


def draft_storage(launch: Launch, word: str, target: KvDtype, draft_backend: str | None) -> KvDtype:
    """Storage dtype of a block draft's cache: its own where fa4 reads it, else as asked."""
    own = model_dtype(launch, draft=True)
    if draft_backend == "fa4":
        return own
    asked = launch.args.speculative_draft_kv_cache_dtype
    if asked is None:
        return own if word == "auto" else target
    return own if asked == "auto" else STORAGE[asked]
