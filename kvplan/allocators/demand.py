"""What a batch asks of an allocator, counted on the host so that no step waits for a device."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from kvplan.allocators.paging import check_ids
from kvplan.errors import PoolError
from kvplan.kernels.paging import offset_of, page_of

LONGEST = 2**40  # tokens of a request: sums over a batch stay far from the end of int64


class Demand(NamedTuple):
    """New tokens and new pages of one batch."""

    batch: int
    num_tokens: int
    num_pages: int


def on_host(device_lens: Tensor, host_lens: Tensor | None, name: str) -> Tensor:
    """The host copy of a batch's lengths; those that already lie on the host are their own copy."""
    check_ids(name, device_lens)
    if host_lens is None:
        host_lens = device_lens
    else:
        check_ids(f"{name}_cpu", host_lens)
    if host_lens.device.type != "cpu":
        raise PoolError(
            f"'{name}' lies on {host_lens.device} and has no host copy",
            hint=f"pass '{name}_cpu': reading it back would wait for the device",
        )
    if host_lens.shape != device_lens.shape:
        raise PoolError(
            f"'{name}' has {device_lens.numel()} entries, its host copy {host_lens.numel()}"
        )
    return host_lens


def demand_of(
    prefix_lens: Tensor,
    seq_lens: Tensor,
    prefix_lens_cpu: Tensor | None,
    seq_lens_cpu: Tensor | None,
    page_size: int,
) -> Demand:
    """`extend_demand` of lengths that may lie on a device."""
    return extend_demand(
        on_host(prefix_lens, prefix_lens_cpu, "prefix_lens"),
        on_host(seq_lens, seq_lens_cpu, "seq_lens"),
        page_size,
    )


def extend_demand(prefix_lens: Tensor, seq_lens: Tensor, page_size: int) -> Demand:
    """Demand of growing each request from prefix_len to seq_len tokens (host tensors)."""
    if prefix_lens.shape != seq_lens.shape:
        raise PoolError(
            f"{prefix_lens.numel()} prefix lengths for {seq_lens.numel()} sequence lengths"
        )
    if not seq_lens.numel():
        return Demand(0, 0, 0)
    new_lens = seq_lens - prefix_lens
    if int(prefix_lens.min()) < 0 or int(new_lens.min()) < 0 or int(seq_lens.max()) > LONGEST:
        _refuse_lengths(prefix_lens, seq_lens)
    num_pages = total_pages(seq_lens, page_size) - total_pages(prefix_lens, page_size)
    return Demand(seq_lens.numel(), int(new_lens.sum()), num_pages)


def decode_demand(seq_lens: Tensor, page_size: int) -> Demand:
    """Demand of one more token per request, the new one counted in seq_len (host tensor)."""
    batch = seq_lens.numel()
    if not batch:
        return Demand(0, 0, 0)
    shortest, longest = map(int, seq_lens.aminmax())
    if shortest < 1 or longest > LONGEST:
        request = int(seq_lens.argmin() if shortest < 1 else seq_lens.argmax())
        raise PoolError(
            f"request {request} of the batch decodes to {int(seq_lens[request])} tokens",
            hint=f"a sequence length counts the new token: 1 to {LONGEST}",
        )
    within_page = int(offset_of(seq_lens - 1, page_size).count_nonzero())
    return Demand(batch, batch, batch - within_page)


def total_pages(seq_lens: Tensor, page_size: int) -> int:
    """Pages that hold the batch, a started page counted whole."""
    return int(page_of(seq_lens + (page_size - 1), page_size).sum())


def check_token_count(num_tokens: int, page_size: int) -> None:
    """Refuse a token count that is negative or cuts a page."""
    if num_tokens < 0:
        raise PoolError(f"cannot allocate {num_tokens} tokens", hint="ask for 0 or more")
    if num_tokens % page_size:
        raise PoolError(
            f"{num_tokens} tokens are no whole pages of {page_size}",
            hint="ask for a multiple of the page size, or use alloc_extend",
        )


def _refuse_lengths(prefix_lens: Tensor, seq_lens: Tensor) -> None:
    pairs = zip(prefix_lens.tolist(), seq_lens.tolist(), strict=True)
    for request, (prefix_len, seq_len) in enumerate(pairs):
        if prefix_len < 0:
            raise PoolError(f"request {request} of the batch has a prefix of {prefix_len} tokens")
        if seq_len < prefix_len:
            raise PoolError(
                f"request {request} of the batch goes back from {prefix_len} to {seq_len} tokens",
                hint="free what it gives up instead",
            )
        if seq_len > LONGEST:
            raise PoolError(
                f"request {request} of the batch has {seq_len} tokens", hint=f"at most {LONGEST}"
            )
