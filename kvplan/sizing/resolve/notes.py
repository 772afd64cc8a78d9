"""What a plan must say aloud: settings it does not follow, and starts that fail after sizing."""

from __future__ import annotations

from kvplan.sizing.drafts import PRICED_LIKE_EAGLE, draft_layers
from kvplan.sizing.resolve import architectures as arch
from kvplan.sizing.resolve.attention import Attention
from kvplan.sizing.resolve.launch import BLACKWELL, Launch
from kvplan.spec.model import Mha, Sliding

NOT_MODELLED = (
    "post_capture_sizing",
    "prefill_only_disable_kv_cache",
    "enable_linear_replayssm",
    "enable_linear_replayssm_spec",
    "enable_int8_mamba_checkpoint",
)
MXFP8_BLOCK = 32
NATIVE_NVFP4_DIM, NATIVE_NVFP4_PAGE = 64, 4
GDN_BACKENDS = frozenset({"triton", "trtllm_mha", "fa4", "flashinfer"})


def not_modelled(launch: Launch) -> tuple[str, ...]:
    """Arguments of the launch that change pools in ways the plan does not follow."""
    args = launch.args
    names = [name for name in NOT_MODELLED if getattr(args, name)]
    if args.post_capture_sizing is None and launch.model.architecture in arch.MUSE_SPARK:
        names.insert(0, "post_capture_sizing")
    if args.enable_unified_memory and not unified_memory(launch):
        names.append("enable_unified_memory")
    if args.quantization == "minimax_m3_nvfp4" and launch.family in BLACKWELL:
        names.append("quantization")
    return tuple(names)


def unified_memory(launch: Launch) -> bool:
    """Whether the plan follows unified memory."""
    if not launch.args.enable_unified_memory:
        return False
    from kvplan.sizing.resolve.unified import modelled

    return modelled(launch)


def warnings(launch: Launch, attention: Attention) -> tuple[str, ...]:
    """What the engine refuses once it builds models and backends, which no sizing sees."""
    backends = attention.backends
    found = [*class_problems(launch), *recipe_problems(launch, attention), *uncounted_draft(launch)]
    for backend in sorted({name for name in backends.pair if name is not None}):
        problem = backend_problem(launch, backend)
        if problem is not None:
            found.append(f"the engine will not start {backend}: {problem}")
    return tuple(found)


def recipe_problems(launch: Launch, attention: Attention) -> list[str]:
    """Heads and pages that a block-scaled pool refuses once it is built."""
    model, recipe = launch.model, attention.dtype
    sides = [side for side in (model.attention, model.sliding) if isinstance(side, Mha | Sliding)]
    dims = {dim for side in sides for dim in (side.head_dim, side.v_head_dim)}
    if recipe == "mxfp8":
        return [
            f"the engine will not build an mxfp8 pool of heads of {dim}: 32 must divide them"
            for dim in sorted(dims)
            if dim % MXFP8_BLOCK
        ]
    native = recipe == "nvfp4" and launch.family == "sm100" and model.sliding is None
    found = []
    if native and isinstance(model.attention, Mha):
        if model.attention.head_dim % NATIVE_NVFP4_DIM:
            dim = model.attention.head_dim
            found.append(
                f"the engine will not build an nvfp4 pool of heads of {dim}: 64 must divide them"
            )
        if attention.page % NATIVE_NVFP4_PAGE:
            found.append(
                f"the engine will not build an nvfp4 pool of pages of {attention.page}: 4 must divide them"
            )
    return found


def uncounted_draft(launch: Launch) -> list[str]:
    """A draft that neither the launch nor the model names, so that a token has no layers of it."""
    model, algorithm = launch.model, launch.args.speculative_algorithm
    if launch.draft is not None or algorithm not in PRICED_LIKE_EAGLE:
        return []
    if draft_layers(model, None, algorithm) is not None:
        return []
    return [
        f"{algorithm} without a draft: {model.name} names no draft layers of its own, so none are "
        "counted; add --draft with a preset or a config.json"
    ]


def class_problems(launch: Launch) -> tuple[str, ...]:
    """What the engine will not do with this model class."""
    stages = launch.args.pp_size or 1
    if stages == 1 and launch.model.linear is None:
        return ()
    from kvplan.sizing.resolve import served

    return served.class_problems(launch.model.architecture, stages)


def backend_problem(launch: Launch, backend: str) -> str | None:
    """Why a backend does not run on this card or model; None if it does."""
    if backend == "fa3" and not (
        launch.family == "sm90" or (launch.family == "sm80" and not launch.mla)
    ):
        return "it needs compute capability 9.0, or 8.x without latent attention"
    if backend in ("trtllm_mha", "hpc_ops") and launch.mla:
        return "it serves no latent attention"
    if backend in ("trtllm_mla", "cutedsl_mla", "flashmla") and not launch.mla:
        return "it serves latent attention only"
    linear = launch.model.linear
    gated = launch.model.architecture in (*arch.QWEN_HYBRID, "Qwen3_5MoeForCausalLM")
    if linear is not None and gated and launch.family in BLACKWELL:
        allowed = GDN_BACKENDS - {"fa4"} if launch.family == "sm120" else GDN_BACKENDS
        if backend not in allowed:
            return f"on Blackwell, gated delta nets run on {', '.join(sorted(allowed))}"
    return None
