"""Tokens of a page: what the model, the attention backend or the launch asks for."""

from __future__ import annotations

from kvplan.sizing.provenance import GIVEN, Origin
from kvplan.sizing.resolve import architectures as arch
from kvplan.sizing.resolve.backends import Backends, nemotron_chain
from kvplan.sizing.resolve.launch import Launch

DEFAULT_PAGE = 1
COMPRESSED_PAGE = 256
DSA_PAGE = 64
MINIMAX_M3_PAGE = 128
FA4_PAGE = 128

# backend, fields that count (draft: the draft's own backend), allowed sizes, what it takes else
BACKEND_PAGES = (
    ("flashmla", ("base", "decode"), (64,), 64),
    ("trtllm_mla", ("base", "decode"), (32, 64), 64),
    ("cutedsl_mla", ("base", "prefill", "decode"), (32, 64), 64),
    ("trtllm_mha", ("base", "prefill", "decode", "draft"), (16, 32, 64, 128), 64),
    ("hpc_ops", ("base", "prefill", "decode"), (64,), 64),
)
CONSTRAINED = frozenset(row[0] for row in BACKEND_PAGES)

DEFAULT = Origin("default", "page-size")
BY_MODEL = Origin("default", "page-by-model")


def model_page(launch: Launch, asked: Backends, chosen: Backends) -> tuple[int | None, Origin]:
    """Page size after the architecture's own rules; None where it is still open."""
    args, model, family = launch.args, launch.model, launch.family
    page, name = args.page_size, model.architecture
    if model.compressed is not None:
        return COMPRESSED_PAGE, BY_MODEL
    if model.indexer is not None:
        formula = "64 × index pool {0}"
        hip = family == "hip"
        origin = Origin("default", "page-by-model", formula, (model.indexer.kpool,), assumed=hip)
        return DSA_PAGE * model.indexer.kpool, origin
    if name in arch.QWEN_HYBRID and family == "sm100" and asked.base is None:
        return 64 if chosen.base == "trtllm_mha" else 1, BY_MODEL
    if page is not None:
        return page, GIVEN
    unset = asked.base is None and asked.prefill is None and asked.decode is None
    if name in arch.NEMOTRON_H and unset and nemotron_chain(launch):
        return 64, BY_MODEL
    if name in arch.MINIMAX_M3:
        paged = {"sm90": ("fa3",), "sm100": ("fa4", "trtllm_mha")}.get(family, ())
        if chosen.base in paged:
            return MINIMAX_M3_PAGE, BY_MODEL
    return None, DEFAULT


def backend_page(
    launch: Launch, backends: Backends, page: int | None, origin: Origin
) -> tuple[int, Origin]:
    """The page size that the attention backends leave of it."""
    named = (backends.base, backends.prefill, backends.decode, backends.draft)
    if not CONSTRAINED.isdisjoint(named):
        for backend, fields, allowed, otherwise in BACKEND_PAGES:
            if page in allowed or backend not in [getattr(backends, field) for field in fields]:
                continue
            origin = forced(backend, " or ".join(map(str, allowed)), page)
            page = otherwise
    if page != FA4_PAGE and fa4_pages(launch, backends):
        origin = forced("fa4", str(FA4_PAGE), page)
        page = FA4_PAGE
    return (DEFAULT_PAGE, DEFAULT) if page is None else (page, origin)


def forced(backend: str, allowed: str, page: int | None) -> Origin:
    """A page size that a backend changed."""
    before = DEFAULT_PAGE if page is None else page
    operands = (backend, allowed, before)
    return Origin("default", "page-by-backend", "{0} takes {1}, not {2}", operands)


def fa4_pages(launch: Launch, backends: Backends) -> bool:
    """fa4 on SM 10.x pages K and V by 128, but runs trees at page size 1 only."""
    return (
        launch.family == "sm100"
        and not launch.mla
        and backends.any_is("fa4")
        and (launch.args.speculative_eagle_topk or 0) <= 1
    )
