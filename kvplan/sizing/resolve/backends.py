"""Which attention backends serve prefill and decode."""

from __future__ import annotations

import msgspec

from kvplan.errors import CombinationError
from kvplan.sizing.provenance import GIVEN, Origin
from kvplan.sizing.resolve import architectures as arch
from kvplan.sizing.resolve.launch import BLACKWELL, Launch
from kvplan.spec.model import Mla

ALIASES = {"nsa": "dsa", "compressed": "dsv4", "tokenspeed_mla": "cutedsl_mla"}
AITER_MLA_HEADS = (16, 128)
DETERMINISTIC = frozenset({"ascend", "fa3", "fa4", "flashinfer", "intel_xpu", "triton"})
DETERMINISTIC_RADIX = frozenset({"ascend", "fa3", "fa4", "triton"})
LARGE_HOPPER_MIB = 60 * 1024

BY_MODEL = Origin("default", "backend-by-model")
NO_E5M2 = Origin("derived", "backend-by-dtype", "fa3 reads no fp8_e5m2")


class Backends(msgspec.Struct, frozen=True):
    """The base backend, the two that a phase may have of its own, and the draft's."""

    base: str | None
    prefill: str | None
    decode: str | None
    draft: str | None

    @property
    def pair(self) -> tuple[str | None, str | None]:
        """What prefill and decode run on."""
        return self.prefill or self.base, self.decode or self.base

    def any_is(self, name: str) -> bool:
        """Whether one of the target's three fields names the backend."""
        return name in (self.base, self.prefill, self.decode)


def asked_backends(launch: Launch) -> Backends:
    """Backends as the launch names them."""
    args = launch.args
    named = (
        args.attention_backend,
        args.prefill_attention_backend,
        args.decode_attention_backend,
        args.speculative_draft_attention_backend,
    )
    return Backends(*(ALIASES.get(name, name) if name else None for name in named))


def model_backends(
    launch: Launch, asked: Backends, page_size: int | None, radix: bool
) -> tuple[Backends, Origin]:
    """The architecture's own choice over what the launch left open."""
    model, family = launch.model, launch.family
    unset = asked.base is None and asked.prefill is None and asked.decode is None
    name = model.architecture
    if model.compressed is not None:
        return msgspec.structs.replace(asked, base="dsv4"), BY_MODEL
    if launch.dsa and unset:
        return msgspec.structs.replace(asked, base="dsa"), BY_MODEL
    if name == "KimiK3ForConditionalGeneration":
        return kimi_k3(launch, asked, unset), BY_MODEL
    if name in arch.KIMI_HYBRID:
        return kimi_draft(launch, asked), BY_MODEL
    if name in arch.NEMOTRON_H and unset and family in BLACKWELL:
        return nemotron_h(launch, asked), BY_MODEL
    if name in arch.QWEN_HYBRID and family == "sm100" and asked.base is None:
        paged = pages_states(launch, radix)
        default = general_default(launch, page_size)
        base = "trtllm_mha" if default == "trtllm_mha" and paged else "triton"
        return msgspec.structs.replace(asked, base=base), BY_MODEL
    if name in arch.QWEN3_VL and large_hopper(launch) and asked.base is None:
        return msgspec.structs.replace(asked, decode=asked.decode or "flashinfer"), BY_MODEL
    found = (
        asked
        if asked.base is not None
        else msgspec.structs.replace(asked, base=row_backend(launch, unset))
    )
    return found, BY_MODEL


def row_backend(launch: Launch, unset: bool) -> str | None:
    """The base backend of an architecture's row; None where it has none for the card."""
    name, family = launch.model.architecture, launch.family
    row = arch.BACKENDS.get(name)
    if row is None or (row.unless == "any" and not unset):
        return None
    if name == "GraniteMoeHybridForCausalLM" and launch.model.linear is None:
        return None
    if name in arch.MINIMAX_M3 and family == "sm100" and launch.args.kv_cache_dtype == "fp8_e4m3":
        return "trtllm_mha"
    return row.by_family.get(family) or row.by_family.get("*")


def pages_states(launch: Launch, radix: bool) -> bool:
    """Whether a Qwen hybrid may page: not with a radix cache over plain states and no speculation."""
    extra = launch.args.mamba_radix_cache_strategy in ("extra_buffer", "extra_buffer_lazy")
    return extra or not radix or launch.args.speculative_algorithm is not None


def large_hopper(launch: Launch) -> bool:
    """The cards that the engine's Qwen3-VL profile was measured on."""
    return (
        launch.family == "sm90" and launch.gpu.memory_mib >= LARGE_HOPPER_MIB and launch.multimodal
    )


def kimi_k3(launch: Launch, asked: Backends, unset: bool) -> Backends:
    """Kimi-K3: latent attention through trtllm on SM 10.0 and 10.3, a fixed pair under DCP."""
    args = launch.args
    if (args.dcp_size or 1) > 1:
        prefill, decode = asked.pair
        if decode in (None, "cutedsl_mla"):
            asked = msgspec.structs.replace(asked, prefill="trtllm_mla", decode="cutedsl_mla")
        elif decode == "aiter":
            prefill = "triton" if prefill == "triton" else "aiter"
            asked = msgspec.structs.replace(asked, prefill=prefill, decode="aiter")
        else:
            raise CombinationError(
                f"Kimi-K3 with dcp_size > 1 decodes on cutedsl_mla or aiter, not {decode}",
                hint="leave decode_attention_backend open",
            )
    elif unset and launch.gpu.sm in (100, 103):
        asked = msgspec.structs.replace(asked, prefill="trtllm_mla", decode="trtllm_mla")
    return kimi_draft(launch, asked)


def kimi_draft(launch: Launch, asked: Backends) -> Backends:
    """A DSpark draft of the Kimi hybrids is dense: it takes trtllm_mha on SM 10.x."""
    dspark = launch.args.speculative_algorithm == "DSPARK"
    if dspark and asked.draft is None and launch.family == "sm100":
        return msgspec.structs.replace(asked, draft="trtllm_mha")
    return asked


def nemotron_h(launch: Launch, asked: Backends) -> Backends:
    """Nemotron-H on Blackwell: trtllm_mha on SM 10.x, triton for trees and elsewhere."""
    algorithm = launch.args.speculative_algorithm
    if algorithm is None:
        return (
            msgspec.structs.replace(asked, base="trtllm_mha") if launch.family == "sm100" else asked
        )
    if nemotron_chain(launch):
        drafts = algorithm in ("EAGLE", "NEXTN", "DSPARK")
        draft = asked.draft or ("trtllm_mha" if drafts else None)
        return msgspec.structs.replace(asked, base="trtllm_mha", draft=draft)
    drafts = algorithm in ("EAGLE", "NEXTN", "DFLASH", "DSPARK")
    return msgspec.structs.replace(
        asked, base="triton", draft=asked.draft or ("flashinfer" if drafts else None)
    )


def nemotron_chain(launch: Launch) -> bool:
    """Whether Nemotron-H speculates without a tree on SM 10.x, which pages and tracks states."""
    return (
        launch.family == "sm100"
        and launch.args.speculative_algorithm is not None
        and launch.args.speculative_eagle_topk in (None, 1)
    )


def general_default(launch: Launch, page_size: int | None) -> str:
    """The engine's default where the architecture has no word of its own."""
    args, family = launch.args, launch.family
    if launch.mla:
        if family == "hip":
            heads = max(1, launch.model.num_attention_heads // (args.tp_size or 1))
            return "aiter" if heads in AITER_MLA_HEADS else "triton"
        return {"sm90": "fa3", "sm100": "flashinfer"}.get(family, "triton")
    topk = args.speculative_eagle_topk
    chain = topk is None or (topk == 1 and page_size in (1, None))
    if chain and family == "sm90":
        return "fa3"
    known = args.speculative_algorithm in (None, "DFLASH") or topk is not None
    if chain and known and family == "sm100":
        return "fa4" if asymmetric(launch) else "trtllm_mha"
    if family == "hip":
        return "aiter"
    return "triton" if launch.model.attention_sinks else "flashinfer"


def asymmetric(launch: Launch) -> bool:
    """Whether K and V rows differ in width."""
    attention, sliding = launch.model.attention, launch.model.sliding
    if isinstance(attention, Mla) or attention.head_dim != attention.v_head_dim:
        return not isinstance(attention, Mla)
    return sliding is not None and sliding.head_dim != sliding.v_head_dim


def deterministic(launch: Launch, asked: Backends) -> Backends:
    """Deterministic inference: its own default, and few backends at all."""
    absorbed = launch.model.architecture in arch.ABSORBED_MLA
    base = asked.base
    if base is None:
        blackwell = launch.family in ("sm100", "sm120")
        base = ("triton" if absorbed else "flashinfer") if blackwell else "fa3"
    allowed = DETERMINISTIC_RADIX if absorbed else DETERMINISTIC
    if base not in allowed:
        raise CombinationError(
            f"deterministic inference of {launch.model.architecture} does not run on {base}",
            hint=f"one of: {', '.join(sorted(allowed))}",
        )
    return msgspec.structs.replace(asked, base=base)


def default_backend(
    launch: Launch, backends: Backends, page_size: int | None, origin: Origin
) -> tuple[Backends, Origin]:
    """Fill the base backend: both phases on one backend name it, else the general default."""
    if backends.prefill is not None and backends.prefill == backends.decode:
        return msgspec.structs.replace(backends, base=backends.prefill), origin
    if backends.base is None:
        base = general_default(launch, page_size)
        kind = "MLA" if launch.mla else "MHA"
        hip = launch.family == "hip"
        found = Origin(
            "default", "backend-by-card", "{0} on {1}", (kind, launch.family), assumed=hip
        )
        return msgspec.structs.replace(backends, base=base), found
    return backends, origin


def after_default(
    launch: Launch, backends: Backends, asked: Backends, origin: Origin
) -> tuple[Backends, Origin]:
    """cutedsl_mla only decodes; fa3 reads no fp8_e5m2."""
    if backends.any_is("cutedsl_mla") and backends.prefill is None:
        backends = msgspec.structs.replace(backends, prefill="trtllm_mla")
    if backends.base == "fa3" and launch.args.kv_cache_dtype == "fp8_e5m2":
        return msgspec.structs.replace(backends, base="triton"), NO_E5M2
    return backends, GIVEN if backends.base == asked.base else origin
