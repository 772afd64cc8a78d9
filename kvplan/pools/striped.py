"""One logical space striped over ranks: by pages, or token by token under context parallelism."""

from __future__ import annotations

from abc import abstractmethod

import torch

from kvplan.errors import PoolError
from kvplan.pools.base import KvPool, PoolTensor, SlotPlace, check_page_lists
from kvplan.pools.routed import RoutedPool
from kvplan.pools.unified import UnifiedPool
from kvplan.pools.write_loc import KVWriteLoc, check_slots


class StripedPool(RoutedPool):
    """One rank's stripe. Slots at its door are logical, the same on every rank.

    Tokens of other ranks land in the padding page, so a write needs no device sync.
    """

    def __init__(self, local: KvPool, *, rank: int, num_ranks: int, page_size: int) -> None:
        if not 0 <= rank < num_ranks:
            raise PoolError(f"there is no rank {rank} of {num_ranks}")
        super().__init__(
            size=local.size * num_ranks,
            page_size=page_size,
            layer_ids=local.layer_ids,
            storage=local.storage,
        )
        self.local = local
        self.rank = rank
        self.num_ranks = num_ranks
        self.no_host_form = local.no_host_form
        # a shared buffer's pages move: only its allocator knows where they are
        self.requires_physical = isinstance(local, UnifiedPool)

    @property
    def num_slots(self) -> int:
        """Logical slots, every rank's padding page included."""
        return self.local.num_slots * self.num_ranks

    @abstractmethod
    def owners(self, slots: torch.Tensor) -> torch.Tensor:
        """The rank of each logical slot."""

    @abstractmethod
    def owner_slots(self, slots: torch.Tensor) -> torch.Tensor:
        """The slot of each logical one on the rank that owns it."""

    def part(self, layer_id: int) -> KvPool:
        self.index(layer_id)
        return self.local

    def parts(self) -> dict[str, list[PoolTensor]]:
        return self.local.parts()

    def local_slots(self, slots: torch.Tensor) -> torch.Tensor:
        """This rank's slots of logical ones; 0 for those of other ranks."""
        return self.owner_slots(slots) * (self.owners(slots) == self.rank)

    def set_kv_buffer(
        self, layer_id: int, loc: KVWriteLoc, k: torch.Tensor, v: torch.Tensor | None = None
    ) -> None:
        check_slots(loc.loc, self.num_slots)
        physical = loc.physical or not self.requires_physical
        local = KVWriteLoc(self.local_slots(loc.loc), physical=physical)
        super().set_kv_buffer(layer_id, local, k, v)

    def read(self, layer_id: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Values at logical slots that all lie on this rank."""
        check_slots(slots, self.num_slots, "the read")
        self._refuse_foreign(slots)
        return super().read(layer_id, self.local_slots(slots))

    def places(self, layer_id: int, slot: int) -> list[SlotPlace]:
        """Where this rank keeps a logical slot; refused for a slot of another rank."""
        slots = torch.tensor([slot])
        check_slots(slots, self.num_slots, "the place")
        self._refuse_foreign(slots)
        return self.local.places(layer_id, int(self.local_slots(slots)))

    def _refuse_foreign(self, slots: torch.Tensor) -> None:
        if slots.device.type != "cpu":
            return
        owners = self.owners(slots)
        foreign = owners != self.rank
        if bool(foreign.any()):
            raise PoolError(
                f"slot {int(slots[foreign][0])} lies on rank {int(owners[foreign][0])}, this is rank {self.rank}",
                hint="read the slots whose owners() are this rank",
            )


class InterleavedPool(StripedPool):
    """Logical page l belongs to rank l % N, as its page l // N."""

    def __init__(self, local: KvPool, *, rank: int, num_ranks: int) -> None:
        super().__init__(local, rank=rank, num_ranks=num_ranks, page_size=local.page_size)

    @property
    def num_pages(self) -> int:
        """Logical pages; the first of every rank is its padding page."""
        return self.local.num_pages * self.num_ranks

    def owners(self, slots: torch.Tensor) -> torch.Tensor:
        return slots // self.page_size % self.num_ranks

    def owner_slots(self, slots: torch.Tensor) -> torch.Tensor:
        page = slots // self.page_size // self.num_ranks
        return page * self.page_size + slots % self.page_size

    def copy_pages(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copy logical pages within each rank; pages of two ranks do not copy over."""
        check_page_lists(source, target)
        for pages in (source, target):
            check_slots(pages, self.num_pages, "the page list")
        if source.device.type == "cpu" and bool(((source - target) % self.num_ranks).any()):
            raise PoolError(
                "a page copy crosses ranks",
                hint="pair pages that are the same modulo the number of ranks",
            )
        mine = source % self.num_ranks == self.rank
        self.local.copy_pages(source // self.num_ranks * mine, target // self.num_ranks * mine)


class ContextStripedPool(StripedPool):
    """Decode context parallelism: logical slot s belongs to rank s % N, as its slot s // N.

    A logical page holds one page of every rank.
    """

    def __init__(self, local: KvPool, *, rank: int, num_ranks: int) -> None:
        page_size = local.page_size * num_ranks
        super().__init__(local, rank=rank, num_ranks=num_ranks, page_size=page_size)

    def owners(self, slots: torch.Tensor) -> torch.Tensor:
        return slots % self.num_ranks

    def owner_slots(self, slots: torch.Tensor) -> torch.Tensor:
        return slots // self.num_ranks

    def copy_pages(self, source: torch.Tensor, target: torch.Tensor) -> None:
        self.local.copy_pages(source, target)
