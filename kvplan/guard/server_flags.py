"""The table of SGLang's server arguments: how each is spelled, what it takes, whether it decides a plan."""

from __future__ import annotations

import functools
import heapq
from importlib.resources import files
from typing import NamedTuple

from kvplan.errors import nearest

VERSION = "0.5.23"
SHORT_FORMS = ("--tp", "--dp")  # the usual abbreviations
# choices that 0.5.23 renamed or dropped: field -> old value -> new value (None: gone)
OLDER_CHOICES: dict[str, dict[str, str | None]] = {
    "kv_cache_dtype": {"fp4_e2m1": "fp4_mx_block16"},
    "attention_backend": {
        "cutlass_mla": None,
        "dual_chunk_flash_attn": None,
        "hybrid_linear_attn": None,
    },
    "prefill_attention_backend": {"cutlass_mla": None, "dual_chunk_flash_attn": None},
    "decode_attention_backend": {"cutlass_mla": None, "dual_chunk_flash_attn": None},
    "dsa_prefill_backend": {
        "flashmla_prefill": "flashmla_sparse",
        "flashmla_decode": "flashmla_kv",
    },
    "dsa_decode_backend": {"flashmla_prefill": "flashmla_sparse", "flashmla_decode": "flashmla_kv"},
    "quantization": {"marlin": None, "qoq": None},
}


class Argument(NamedTuple):
    """One server argument by its field name."""

    field: str
    kind: str
    role: str
    flags: tuple[str, ...]
    choices: tuple[str, ...]


class Older(NamedTuple):
    """A flag of an earlier version: the field it became (None: gone) and the value it stood for."""

    flag: str
    kind: str
    field: str | None
    value: str | None


class Found(NamedTuple):
    """What a spelling on a command line means; `negated` for the --no- form of a switch."""

    argument: Argument
    negated: bool


@functools.cache
def arguments() -> dict[str, Argument]:
    """All arguments of the engine by field name."""
    table: dict[str, Argument] = {}
    for field, kind, role, *rest in rows("server_args.txt"):
        choices = tuple(rest.pop()[1:].split("|")) if rest and rest[-1][0] == "=" else ()
        own = [] if rest and rest[0][0] == "!" else [flag_of(field)]
        flags = tuple(own + [flag.lstrip("!") for flag in rest])
        table[field] = Argument(field, kind, role, flags, choices)
    return table


@functools.cache
def older() -> dict[str, Older]:
    """Flags of earlier versions by spelling."""
    table: dict[str, Older] = {}
    for flag, kind, target in rows("older_server_args.txt"):
        field, _, value = target.partition("=")
        table[flag] = Older(flag, kind, None if field == "-" else field, value or None)
    return table


@functools.cache
def spellings() -> dict[str, Found]:
    """Every spelling that the engine's own parser registers."""
    table: dict[str, Found] = {}
    for argument in arguments().values():
        for flag in argument.flags:
            table[flag] = Found(argument, negated=False)
            if argument.kind == "switch":
                table["--no-" + flag[2:]] = Found(argument, negated=True)
    return table


def rows(name: str) -> list[list[str]]:
    """Words of each line of a data file, comments left out."""
    text = files("kvplan").joinpath("data", name).read_text("utf-8")
    return [line.split() for line in text.splitlines() if not line.startswith("#")]


def flag_of(field: str) -> str:
    """`tp_size` as `--tp-size`."""
    return "--" + field.replace("_", "-")


def find(spelling: str) -> Found | Older | None:
    """The argument that a spelling names: exactly, as an older flag, or as an unambiguous prefix."""
    known = spellings()
    if spelling in known:
        return known[spelling]
    if spelling in older():
        return older()[spelling]
    matches = [found for flag, found in known.items() if flag.startswith(spelling)]
    return matches[0] if len({match.argument.field for match in matches}) == 1 else None


def suggestion(spelling: str) -> str | None:
    """What an unknown spelling may have been meant for."""
    if not 2 < len(spelling) <= 80:
        return None
    matches = sorted(flag for flag in spellings() if flag.startswith(spelling))
    if matches:
        return f"it could be any of: {', '.join(matches[:6])}"
    pairs = letter_pairs(spelling)
    similar = heapq.nlargest(12, pairs_of_flags().items(), key=lambda item: len(pairs & item[1]))
    close = nearest(spelling, [flag for flag, _ in similar])
    return f"did you mean '{close}'?" if close else None


@functools.cache
def pairs_of_flags() -> dict[str, frozenset[str]]:
    """Neighbouring letters of every flag, to find similar ones quickly."""
    return {flag: letter_pairs(flag) for flag in [*SHORT_FORMS, *spellings(), *older()]}


def letter_pairs(text: str) -> frozenset[str]:
    """The pairs of neighbouring letters in a text."""
    return frozenset(text[at : at + 2] for at in range(len(text) - 1))
