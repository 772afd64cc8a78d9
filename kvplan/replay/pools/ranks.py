"""Several ranks of a launch under torchrun: each builds its own stage, and all must agree."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import torch
import torch.distributed as dist

from kvplan.errors import InputError, WorkerError
from kvplan.replay.checks import Broken
from kvplan.replay.pools.watched import Growth, Tenancy, Watcher
from kvplan.replay.replay import Replay, Turn
from kvplan.replay.trace import rank_here, ranks_here, torchrun_number, torchrun_word
from kvplan.sizing.plan import Plan
from kvplan.units import floor_page

AGREEMENT = "ranks agree step by step"
STEPS_AN_EXCHANGE = 64
TRANSPORT = re.compile(r"^\[[^\]]*\] *")
RUNNING, STOPPED, FAILED, DONE = range(4)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Which rank this process is, and which part of the launch it holds."""

    rank: int = 0
    num_ranks: int = 1
    local_rank: int = 0
    pp_rank: int = 0
    dcp_rank: int = 0


def part_of(plan: Plan) -> Part:
    """This process's part of a launch, as torchrun numbers it.

    A stage has as many ranks as there are over the stages. InputError where they do not go
    together.
    """
    num_ranks, rank = ranks_here(), rank_here()
    if num_ranks == 1:
        return Part()
    widths = plan.resolved.widths
    of_stage, rest = divmod(num_ranks, widths.pp)
    if rest or of_stage > widths.tp or (of_stage % widths.attn_dcp and of_stage != 1):
        raise InputError(
            f"{num_ranks} ranks do not go with {widths.pp} pipeline stages of {widths.tp} ranks",
            hint=f"use torchrun --nproc-per-node {widths.pp * max(1, widths.attn_dcp)},"
            f" or a launch for {num_ranks} ranks, e.g. --pp-size {num_ranks}",
        )
    return Part(
        rank=rank,
        num_ranks=num_ranks,
        local_rank=torchrun_number("LOCAL_RANK"),
        pp_rank=rank // of_stage,
        dcp_rank=rank % of_stage % widths.attn_dcp,
    )


@contextmanager
def joined(part: Part, device: torch.device) -> Iterator[None]:
    """The process group of all ranks: nccl on CUDA, gloo elsewhere; nothing for a single one."""
    if part.num_ranks == 1:
        yield
        return
    torchrun_word("MASTER_ADDR")
    torchrun_number("MASTER_PORT", least=1, most=65_535)
    with together():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def together() -> Iterator[None]:
    """Around what all ranks do at once; WorkerError where one of them has gone."""
    try:
        yield
    except RuntimeError as error:
        # the transport names its source file first and advises after the reason
        reason = TRANSPORT.sub("", str(error)).partition(". ")[0].splitlines()[0]
        raise WorkerError(
            f"another rank cannot be reached: {reason.lower()}",
            hint="its own message, or the first failure that torchrun lists, says why",
        ) from None


def common_tokens(plan: Plan, part: Part, device: torch.device) -> int:
    """Tokens that every rank holds: the least of what each one's stage would hold alone."""
    alone = plan.stages[part.pp_rank].pool.profiled_tokens
    cap = plan.resolved.max_total_tokens
    tokens = torch.tensor(alone if cap is None else min(alone, cap), device=device)
    if part.num_ranks > 1:
        with together():
            dist.all_reduce(tokens, op=dist.ReduceOp.MIN)
    return floor_page(int(tokens), plan.resolved.page_size)


def refuse_other_launches(part: Part, device: torch.device, mine: dict[str, int]) -> None:
    """InputError, with the parts that differ, where the ranks have not the same digests."""
    on_cuda = device.type == "cuda"  # gloo takes tensors on the CPU, whatever the pools are on
    digests = torch.tensor(list(mine.values()), device=device if on_cuda else "cpu")
    theirs = [torch.empty_like(digests) for _ in range(part.num_ranks)]
    with together():
        dist.all_gather(theirs, digests)
    first, *others = [each.tolist() for each in theirs]
    for rank, other in enumerate(others, 1):
        pairs = zip(mine, first, other, strict=True)
        if differing := [name for name, one, another in pairs if one != another]:
            raise InputError(
                f"rank {rank} differs from rank 0 in: {', '.join(differing)}",
                hint="start every rank with the same launch, workload and options",
            )


def everyone(part: Part, device: torch.device, answer: bool) -> bool:
    """Whether all ranks say yes."""
    if part.num_ranks == 1:
        return answer
    answers = torch.tensor(int(answer), device=device)
    with together():
        dist.all_reduce(answers, op=dist.ReduceOp.MIN)
    return bool(answers)


class Agreement(Watcher):
    """Compares what every rank did, step by step, a batch of steps at a time.

    It looks on a replay as an observer. Ranks stop together: each says how it fares with every
    exchange, so that none waits for one that has left.
    """

    def __init__(self, part: Part, device: torch.device, stop: Callable[[], bool] | None) -> None:
        self.num_compared = 0
        self.stopped = False
        self._part = part
        self._device = device
        self._asked_to_stop = stop
        self._checksum = 0
        self._steps: list[int] = []

    def attach(self, run: Replay, total: int | None) -> None:
        """A replay that runs on every rank."""

    def see(self, turn: Turn) -> None:
        """Note the step; exchange when enough have come together."""
        del turn
        self._steps.append(self._checksum)
        if len(self._steps) == STEPS_AN_EXCHANGE:
            stops = self._asked_to_stop is not None and self._asked_to_stop()
            self._exchange(STOPPED if stops else RUNNING)

    def opened(self, tenancy: Tenancy, prefix: list[torch.Tensor]) -> None:  # noqa: ARG002
        self._add(tenancy.sequence.row.to_bytes(8, "little"))

    def grown(self, growth: Growth) -> None:
        self._add(growth.slots.tobytes())

    def closed(self, tenancy: Tenancy) -> None:
        self._add(tenancy.sequence.row.to_bytes(8, "little"))

    def finish(self) -> None:
        """The last exchange of a rank whose replay is over."""
        if not self.stopped:
            self._exchange(DONE)

    def fail(self) -> None:
        """The last exchange of a rank that found an invariant broken."""
        if not self.stopped:
            self._send(FAILED)

    def _add(self, content: bytes) -> None:
        self._checksum = zlib.crc32(content, self._checksum)

    def _exchange(self, state: int) -> None:
        theirs = self._send(state)
        mine = theirs[self._part.rank]
        for rank, other in enumerate(theirs):
            if other[0] == FAILED:
                self.stopped = True
                raise Broken(AGREEMENT, f"rank {rank} found an invariant broken")
            if other[1:] != mine[1:] or (other[0] == DONE) != (mine[0] == DONE):
                self.stopped = True
                raise self._disagreement(rank, other[1:], mine[1:])
        self.num_compared += mine[1]
        self.stopped = any(other[0] == STOPPED for other in theirs)

    def _send(self, state: int) -> list[list[int]]:
        """[state, number of steps, their checksums] of every rank."""
        padding = [0] * (STEPS_AN_EXCHANGE - len(self._steps))
        message = torch.tensor([state, len(self._steps), *self._steps, *padding])
        self._steps = []
        message = message.to(self._device)
        everyone = [torch.empty_like(message) for _ in range(self._part.num_ranks)]
        with together():
            dist.all_gather(everyone, message)
        return [each.tolist() for each in everyone]

    def _disagreement(self, rank: int, theirs: list[int], mine: list[int]) -> Broken:
        first = next(
            (
                at
                for at, pair in enumerate(zip(theirs[1:], mine[1:], strict=True))
                if pair[0] != pair[1]
            ),
            0,
        )
        step = self.num_compared + first
        return Broken(
            AGREEMENT, f"in step {step} rank {rank} took other slots than rank {self._part.rank}"
        )
