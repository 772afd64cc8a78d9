"""The write doors of every kind of pool, as places where a stamp is put and read back."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from kvplan.pools.base import KvPool, RowShapes
from kvplan.pools.compressed import CompressedPool
from kvplan.pools.dsa import DsaPool
from kvplan.pools.fp4 import BLOCK
from kvplan.pools.hybrid import HybridLinearPool
from kvplan.pools.index_keys import SCALE_BLOCK, IndexKeyPool
from kvplan.pools.marks import DIGITS, mark
from kvplan.pools.sliding import SwaPool
from kvplan.pools.sparse import SparsePool
from kvplan.pools.striped import StripedPool
from kvplan.pools.write_loc import KVWriteLoc

MOST_DIGITS = 20  # that a mark spells
POSITION_BITS = 24
SPREAD = 1_000_003  # a prime: neighbours in both numbers stay apart


class Door(ABC):
    """One layer's place for stamps; slots, identities and positions are (tokens,) int64."""

    name: str

    @abstractmethod
    def write(self, slots: Tensor, identities: Tensor, positions: Tensor) -> None:
        """Put each token's stamp at its slot."""

    @abstractmethod
    def intact(self, slots: Tensor, identities: Tensor, positions: Tensor) -> Tensor:
        """(tokens,) bool: whether each slot still has its token's stamp, or has no part here."""


class KvDoor(Door):
    """K and V of one layer."""

    def __init__(self, pool: KvPool, layer_id: int) -> None:
        self.name = f"layer {layer_id}"
        self._pool = pool
        self._layer_id = layer_id
        self._shapes: RowShapes = pool.row_shapes(layer_id)

    def write(self, slots: Tensor, identities: Tensor, positions: Tensor) -> None:
        shapes = self._shapes
        k_numbers, v_numbers = numbers(identities, positions, shapes)
        v = None if shapes.v is None else mark(v_numbers, shapes.v)
        self._put(slots, mark(k_numbers, shapes.k), v)

    def intact(self, slots: Tensor, identities: Tensor, positions: Tensor) -> Tensor:
        here = self._readable(slots)
        k_numbers, v_numbers = numbers(identities[here], positions[here], self._shapes)
        k, v = self._take(slots[here])
        good = same(k, mark(k_numbers, self._shapes.k))
        if v is not None and self._shapes.v is not None:
            good &= same(v, mark(v_numbers, self._shapes.v))
        found = torch.ones_like(slots, dtype=torch.bool)
        found[here] = good
        return found

    def _put(self, slots: Tensor, k: Tensor, v: Tensor | None) -> None:
        self._pool.set_kv_buffer(self._layer_id, KVWriteLoc(slots), k, v)

    def _take(self, slots: Tensor) -> tuple[Tensor, Tensor | None]:
        return self._pool.read(self._layer_id, slots)

    def _readable(self, slots: Tensor) -> Tensor:
        """(tokens,) bool: slots that this layer still has here."""
        return torch.ones_like(slots, dtype=torch.bool)


class StripedDoor(KvDoor):
    """One layer of a rank that holds every n-th token."""

    def __init__(self, pool: StripedPool, layer_id: int) -> None:
        super().__init__(pool, layer_id)
        self._striped = pool

    def _readable(self, slots: Tensor) -> Tensor:
        return self._striped.owners(slots) == self._striped.rank


class WindowDoor(KvDoor):
    """A layer whose slots lie on the sliding side and leave it with the window."""

    def __init__(self, pool: SwaPool | CompressedPool, layer_id: int) -> None:
        super().__init__(pool, layer_id)
        self._windowed = pool

    def _put(self, slots: Tensor, k: Tensor, v: Tensor | None) -> None:
        loc = KVWriteLoc(slots, swa_loc=self._windowed.translate(slots))
        self._pool.set_kv_buffer(self._layer_id, loc, k, v)

    def _take(self, slots: Tensor) -> tuple[Tensor, Tensor | None]:
        return self._pool.read(self._layer_id, self._windowed.translate(slots))

    def _readable(self, slots: Tensor) -> Tensor:
        return self._windowed.translate(slots) > 0


class CompressedDoor(KvDoor):
    """Latents for groups of tokens: the token that ends a group stamps it."""

    def __init__(self, pool: CompressedPool, layer_id: int) -> None:
        ratio = pool.ratio_pool(layer_id)
        super().__init__(ratio.latent, layer_id)
        self.name = f"layer {layer_id}, one latent for {ratio.ratio} tokens"
        self._compressed = pool
        self._ratio = ratio.ratio

    def write(self, slots: Tensor, identities: Tensor, positions: Tensor) -> None:
        ends = self._readable(slots)
        super().write(slots[ends], identities[ends], positions[ends])

    def _put(self, slots: Tensor, k: Tensor, v: Tensor | None) -> None:  # noqa: ARG002
        self._compressed.set_compressed(self._layer_id, KVWriteLoc(slots), k)

    def _take(self, slots: Tensor) -> tuple[Tensor, Tensor | None]:
        return self._compressed.read_compressed(self._layer_id, slots), None

    def _readable(self, slots: Tensor) -> Tensor:
        return (slots + 1) % self._ratio == 0


class SparseIndexDoor(KvDoor):
    """The index of a sparse layer."""

    def __init__(self, pool: SparsePool, layer_id: int) -> None:
        super().__init__(pool.index_part(layer_id), layer_id)
        self.name = f"index of layer {layer_id}"


class IndexKeyDoor(Door):
    """Index keys of one layer, a key a token."""

    def __init__(self, keys: IndexKeyPool, layer_id: int) -> None:
        self.name = f"index keys of layer {layer_id}"
        self._keys = keys
        self._layer_id = layer_id
        self._shapes = RowShapes((keys.head_dim,), None)

    def write(self, slots: Tensor, identities: Tensor, positions: Tensor) -> None:
        k_numbers, _ = numbers(identities, positions, self._shapes)
        stamped = mark(k_numbers, self._shapes.k).to(torch.float8_e4m3fn)
        self._keys.write(self._layer_id, slots, stamped, self._scales(positions))

    def intact(self, slots: Tensor, identities: Tensor, positions: Tensor) -> Tensor:
        k_numbers, _ = numbers(identities, positions, self._shapes)
        stamped, scales = self._keys.read(self._layer_id, slots)
        good = same(stamped, mark(k_numbers, self._shapes.k))
        return good & same(scales, self._scales(positions))

    def _scales(self, positions: Tensor) -> Tensor:
        each = (positions + 1).to(torch.float32)[:, None]
        return each.expand(-1, self._keys.head_dim // SCALE_BLOCK).contiguous()


def doors_of(pool: KvPool) -> list[Door]:
    """Every write door of a pool that holds something of each token, or of a group of them."""
    if isinstance(pool, HybridLinearPool):
        return doors_of(pool.full)
    found: list[Door] = []
    for layer_id in pool.layer_ids:
        found += layer_doors(pool, layer_id)
    return found


def layer_doors(pool: KvPool, layer_id: int) -> Iterator[Door]:
    """The doors of one layer."""
    if isinstance(pool, StripedPool):
        yield StripedDoor(pool, layer_id)
    elif isinstance(pool, CompressedPool):
        yield WindowDoor(pool, layer_id)
        if any(layer_id in ratio.latent.layer_ids for ratio in pool.by_ratio.values()):
            yield CompressedDoor(pool, layer_id)
    elif isinstance(pool, SwaPool) and pool.layers[layer_id][1]:
        yield WindowDoor(pool, layer_id)
    else:
        yield KvDoor(pool, layer_id)
    if isinstance(pool, DsaPool):
        keys = pool.index_keys
        if layer_id in keys.owners and keys.kpool == 1:
            yield IndexKeyDoor(keys, layer_id)
    if isinstance(pool, SparsePool) and any(layer_id in each.layer_ids for each in pool.indexes):
        yield SparseIndexDoor(pool, layer_id)


def numbers(identities: Tensor, positions: Tensor, shapes: RowShapes) -> tuple[Tensor, Tensor]:
    """What K and V spell: both numbers where a row has room for them, else one each or a mix."""
    k_limit = limit(shapes.k)
    if k_limit == DIGITS**MOST_DIGITS:
        both = (identities << POSITION_BITS) | positions
        return both, both
    if shapes.v is not None:
        return positions % k_limit, identities % limit(shapes.v)
    return (identities * SPREAD + positions) % k_limit, identities


def limit(row: tuple[int, ...]) -> int:
    """Numbers that a row's mark can spell."""
    width = math.prod(row)
    lanes = width - -(-width // BLOCK)
    return int(DIGITS ** min(lanes, MOST_DIGITS))


def same(found: Tensor, written: Tensor) -> Tensor:
    """(tokens,) bool: rows that are what was written, bit for bit, in the dtype that comes back."""
    if not len(found):
        return torch.ones(0, dtype=torch.bool, device=found.device)
    bits = [
        rows.contiguous().view(torch.uint8).flatten(1) for rows in (found, written.to(found.dtype))
    ]
    return (bits[0] == bits[1]).all(1)
