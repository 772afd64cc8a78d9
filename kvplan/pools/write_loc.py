"""Where a step's K and V go: the address travels with the batch, not with the pool."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from kvplan.errors import PoolError

INTEGERS = (torch.int32, torch.int64)


@dataclass(frozen=True, slots=True)
class KVWriteLoc:
    """Slots of a batch's new tokens, in batch order, each of shape (tokens,).

    `swa_loc` and `full_loc` are the same tokens' slots in the sliding and the full sub-pool; where
    they were resolved for a longer, padded batch they are cut to `loc`. `physical` marks the slots
    as physical ids for pools that take no others.
    """

    loc: torch.Tensor
    swa_loc: torch.Tensor | None = None
    full_loc: torch.Tensor | None = None
    physical: bool = False

    def __post_init__(self) -> None:
        for name in ("loc", "swa_loc", "full_loc"):
            slots = getattr(self, name)
            if slots is None:
                continue
            if slots.dim() != 1 or slots.dtype not in INTEGERS:
                raise PoolError(
                    f"{name} must be a row of int32 or int64 slots, it is {tuple(slots.shape)} {slots.dtype}"
                )
            if len(slots) < len(self.loc):
                raise PoolError(
                    f"{name} has {len(slots)} slots for the {len(self.loc)} tokens of loc",
                    hint="resolve it from the whole out_cache_loc",
                )
            object.__setattr__(self, name, slots[: len(self.loc)])

    def __len__(self) -> int:
        return len(self.loc)

    def __getitem__(self, tokens: slice) -> KVWriteLoc:
        """The same addresses for a part of the batch, mark included."""
        return replace(
            self,
            loc=self.loc[tokens],
            swa_loc=None if self.swa_loc is None else self.swa_loc[tokens],
            full_loc=None if self.full_loc is None else self.full_loc[tokens],
        )


def check_slots(slots: torch.Tensor, num_slots: int, name: str = "loc") -> None:
    """Refuse slots outside 0 .. num_slots - 1, where reading them costs no device sync."""
    if slots.device.type != "cpu" or not len(slots):
        return
    lowest, highest = slots.aminmax()
    for slot in (int(lowest), int(highest)):
        if not 0 <= slot < num_slots:
            raise PoolError(
                f"{name} names slot {slot}, the pool has slots 0 to {num_slots - 1}",
                hint="slots come from the pool's own allocator",
            )
