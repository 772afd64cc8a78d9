"""What became of each of the six checks of a replay over pools, in words."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.pools.allocation import CudaBytes, compare
from kvplan.pools.build import Pools, build
from kvplan.replay import checks
from kvplan.replay.checks import Broken, Check
from kvplan.replay.pools.audit import Auditor, ReserveRule
from kvplan.replay.pools.ranks import AGREEMENT, Agreement, Part
from kvplan.replay.pools.stamps import Stamper
from kvplan.replay.result import ReplayResult
from kvplan.sizing.plan import Plan
from kvplan.sizing.pool_layout import stage_layout
from kvplan.units import GIB

MAX_NAMED = 3


def bytes_check(plan: Plan, pools: Pools, pp_rank: int, cuda: CudaBytes | None) -> Check:
    """Planned against built tensors, as they are, and at full size on meta where they are small."""
    wrong = list(byte_differences(pools))
    text = f"{pools.bytes() / GIB:.2f} GiB as built"
    if pools.plan is not plan:
        full = build(plan, "meta", pp_rank=pp_rank)
        wrong += byte_differences(full)
        text += f", {full.bytes() / GIB:.2f} GiB at full size"
    if cuda is not None:
        text += f", {cuda.requested / GIB:.2f} GiB asked of the caching allocator"
        if cuda.planned != cuda.requested:
            wrong.append(
                f"the tensors take {cuda.planned:,} B, asked for were {cuda.requested:,} B"
            )
    return judged(checks.BYTES, wrong, text)


def byte_differences(pools: Pools) -> Iterator[str]:
    """Tensors that are not as the plan has them."""
    for each in compare(stage_layout(pools.plan, pools.stage), pools):
        if each.difference:
            yield f"{each.pool}.{each.name}: {each.difference}"


def witness_checks(auditor: Auditor, rule: ReserveRule, stamper: Stamper | None) -> Iterator[Check]:
    """The checks that were made all along, none of them broken."""
    audits = "1 audit" if auditor.num_audits == 1 else f"{auditor.num_audits:,} audits"
    yield held(
        checks.OWNERS,
        f"{audits} of {auditor.num_pages:,} pages, and each page at each step",
    )
    yield held(checks.LISTS, audits)
    if stamper is None:
        yield checks.not_checked(checks.STAMPS, "--stamp writes and reads them")
    else:
        yield held(
            checks.STAMPS, f"{stamper.num_stamped:,} tokens stamped, {stamper.num_read:,} read back"
        )
    yield held(
        checks.RESERVE,
        f"at most {rule.most_in_step:,} of {rule.most_allowed:,} tokens in a step,"
        f" {rule.longest_row:,} of {rule.row_width:,} positions in a row",
    )


def peaks_check(predicted: ReplayResult, measured: ReplayResult) -> Check:
    """The accounting engine's figures against those of the pools."""
    expected, found = predicted.agreed(), measured.agreed()
    wrong = [
        f"{name}: {value:,} predicted, {found[name]:,} measured"
        for name, value in expected.items()
        if found[name] != value
    ]
    return judged(checks.PEAKS, wrong, f"{len(expected)} figures, peaks among them")


def agreement_check(
    part: Part, broken: Broken | None, agreement: Agreement | None, tokens: int
) -> Iterator[Check]:
    """Whether all ranks took the same slots at each step; nothing to say of a single one."""
    if agreement is None or broken is not None:
        return
    yield held(
        AGREEMENT,
        f"{agreement.num_compared:,} steps of {part.num_ranks} ranks, each with {tokens:,} tokens",
    )


def judged(name: str, wrong: list[str], text: str) -> Check:
    """Held with its text, or broken with the first things that are wrong."""
    if not wrong:
        return held(name, text)
    more = f", and {len(wrong) - MAX_NAMED} more" if len(wrong) > MAX_NAMED else ""
    return Check(name=name, state="broken", text="; ".join(wrong[:MAX_NAMED]) + more)


def held(name: str, text: str) -> Check:
    return Check(name=name, state="held", text=text)
