"""SGLang's environment variables that decide sizes or schedules, as the arguments that they stand for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kvplan.errors import InputError
from kvplan.guard.server_arguments import Remark, shortened
from kvplan.guard.shell_values import Word
from kvplan.guard.shell_words import SERVER_VARIABLE

# `NAME=value` in front of a command, behind `env`, and behind docker's `-e` or `--env`
ASSIGNED = re.compile(rf"(?:--env=|-e)?({SERVER_VARIABLE.pattern})=(.*)", re.DOTALL)
SWITCHES = dict.fromkeys(("true", "1", "yes", "y"), True) | dict.fromkeys(
    ("false", "0", "no", "n"), False
)
STATE_DTYPES = frozenset({"float32", "bfloat16", "float16"})
RING = "unified_kv_triton"


class Variable(NamedTuple):
    """The field of a variable, how its text is read, and what it must be."""

    field: str
    read: Callable[[str], Any | None]
    noun: str


def switch(text: str) -> bool | None:
    """A switch as the engine reads it; None where it takes its default."""
    return SWITCHES.get(text.lower())


def layers(text: str) -> list[int] | None:
    """Layers of each pipeline stage."""
    counts = [part.strip() for part in text.split(",")]
    return [int(part) for part in counts] if all(map(str.isdecimal, counts)) else None


def state_dtype(text: str) -> str | None:
    """A dtype of recurrent states."""
    return text if text in STATE_DTYPES else None


VARIABLES = {
    "SGLANG_PP_LAYER_PARTITION": Variable("pp_layer_partition", layers, "layer counts like 16,16"),
    "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": Variable("allow_longer_context", switch, "true or false"),
    "SGLANG_ENABLE_POST_CAPTURE_KV_SIZING": Variable("post_capture_sizing", switch, "true or false"),
    "SGLANG_HACK_FLASHMLA_BACKEND": Variable("dsv4_unified_kv", RING.__eq__, RING),
    "SGLANG_DSV4_UNIFIED_KV_FP8": Variable("dsv4_unified_kv_fp8", switch, "true or false"),
    "SGLANG_MAMBA_SSM_DTYPE": Variable("mamba_ssm_dtype", state_dtype, "a dtype of states"),
}  # fmt: skip
REFUSED = frozenset({"pp_layer_partition"})  # the engine stops; elsewhere it takes its default
BESIDE = frozenset(
    {
        "SGLANG_DISABLE_M3_FP8_ATTN_GEMM",
        "SGLANG_DSV4_COMPRESS_STATE_DTYPE",
        "SGLANG_DSV4_KV_LAYOUT",
        "SGLANG_EXPERIMENTAL_ONLINE_C128_MTP",
        "SGLANG_MAMBA_CONV_DTYPE",
        "SGLANG_MM_FEATURE_CACHE_MB",
        "SGLANG_OPT_MINIMAX_M3_FP8_INDEX_CACHE",
        "SGLANG_OPT_USE_ONLINE_COMPRESS",
        "SGLANG_SWA_EVICTION_INTERVAL",
        "SGLANG_SYMM_MEM_PREALLOC_GB_SIZE",
        "SGLANG_USE_CUDA_IPC_TRANSPORT",
        "SGLANG_VLM_CACHE_SIZE_MB",
    }
)
SCHEDULING = frozenset(
    {
        "IN_BATCH_PREFIX_CACHING_CHECK_THRESHOLD",
        "IN_BATCH_PREFIX_CACHING_DEPRIORITIZE_THRESHOLD",
        "SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION",
        "SGLANG_DISABLE_CONSECUTIVE_PREFILL_OVERLAP",
        "SGLANG_ENABLE_WAITING_PREFIX_REFRESH",
        "SGLANG_INIT_NEW_TOKEN_RATIO",
        "SGLANG_MAX_NEW_TOKENS_LIMIT",
        "SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR",
        "SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS",
        "SGLANG_RADIX_FORCE_MISS",
        "SGLANG_REQ_RUNNING_TIMEOUT",
        "SGLANG_REQ_WAITING_TIMEOUT",
        "SGLANG_RETRACT_DECODE_STEPS",
        "SGLANG_TEST_RETRACT",
    }
)


class ServerEnvironment(NamedTuple):
    """What the environment of a server says, by SGLang's field names."""

    args: dict[str, Any]
    scheduling: dict[str, Any]
    """variables that change a replay in ways that no rule covers"""
    beside: dict[str, Any]
    """variables that may change sizes in ways that a plan does not model"""
    unresolved: dict[str, str]
    places: dict[str, str]
    warnings: tuple[Remark, ...]


def assignments(words: Sequence[Word]) -> tuple[Word, ...]:
    """The words that set a variable of SGLang's, each as NAME=value."""
    found = ((word, ASSIGNED.fullmatch(word.text)) for word in words)
    return tuple(
        word._replace(text=f"{match[1]}={match[2]}") for word, match in found if match is not None
    )


def container_assignments(variables: Mapping[str, str], place: str) -> tuple[Word, ...]:
    """The same of a container's variables."""
    return assignments([Word(f"{name}={value}", place) for name, value in variables.items()])


def read_environment(words: Sequence[Word]) -> ServerEnvironment:
    """The arguments that assignments stand for, the last of each; InputError for what stops a server."""
    args: dict[str, Any] = {}
    scheduling: dict[str, Any] = {}
    beside: dict[str, Any] = {}
    unresolved: dict[str, str] = {}
    places: dict[str, str] = {}
    warnings: list[Remark] = []
    for name, word in {word.text.partition("=")[0]: word for word in words}.items():
        value = word.text.partition("=")[2]
        if name in BESIDE:
            beside[name] = value
            continue
        if name in SCHEDULING:
            scheduling[name] = value
            continue
        variable = VARIABLES.get(name)
        if variable is None:
            continue
        places[variable.field] = word.place
        warnings += [Remark(text=note, where=word.place) for note in word.notes]
        if word.unknown:
            unresolved[variable.field] = value
            warnings.append(remark(word, f"the value of '{name}' is known only when it runs"))
            continue
        read = variable.read(value)
        if read is not None:
            args[variable.field] = read
        elif variable.field in REFUSED:
            raise InputError(
                f"'{name}' must be {variable.noun}, got {shortened(value)}", where=word.place
            )
        else:
            warnings.append(remark(word, not_taken(name, variable, value)))
    return ServerEnvironment(args, scheduling, beside, unresolved, places, tuple(warnings))


def not_taken(name: str, variable: Variable, value: str) -> str:
    return f"'{name}' is not {variable.noun}, got {shortened(value)}: the engine takes its default"


def remark(word: Word, text: str) -> Remark:
    return Remark(text=text, where=word.place)
