"""The nvfp4 recipe: fp8 scales in one or two layouts, and an fp8 workspace for prefill."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvplan.errors import PoolError
from kvplan.pools.fp4 import BLOCK, dequantize_nvfp4, quantize_nvfp4
from kvplan.pools.fp4_mha import Fp4Pool
from kvplan.pools.leaf import put
from kvplan.pools.storage import Storage

NATIVE_DIM = 64  # native scale layouts need head dims that this divides
NATIVE_TOKENS = 4  # tokens that the native layout of V interleaves


class Nvfp4Pool(Fp4Pool):
    """The nvfp4 recipe: fp8 scale bytes, linear, native or both, and a workspace if asked for.

    Linear scales are (slots, heads, dim // 16), native ones (pages, heads, page, dim // 16); the
    fp8 workspace is (slots, heads, dim), once for K and once for V.
    """

    def __init__(
        self,
        *,
        size: int,
        page_size: int,
        layer_ids: Sequence[int],
        num_heads: int,
        head_dim: int,
        linear: bool,
        native: bool,
        workspace: bool,
        storage: Storage,
    ) -> None:
        if not linear and not native:
            raise PoolError("nvfp4 needs a scale layout", hint="linear, native or both")
        if native and (head_dim % NATIVE_DIM or page_size % NATIVE_TOKENS):
            raise PoolError(
                f"native nvfp4 scales need a head_dim that {NATIVE_DIM} and a page that {NATIVE_TOKENS} divides, not {head_dim} and {page_size}"
            )
        super().__init__(
            size=size,
            page_size=page_size,
            layer_ids=layer_ids,
            num_heads=num_heads,
            head_dim=head_dim,
            storage=storage,
        )
        scale_dim = head_dim // BLOCK
        self._linear = [
            self.add(name, (num_heads, scale_dim), torch.uint8)
            for name in ("k_scale", "v_scale")
            if linear
        ]
        self._native = [
            self.add(name, (num_heads, page_size, scale_dim), torch.uint8, rows_per_page=1)
            for name in ("k_native_scale", "v_native_scale")
            if native
        ]
        self._workspace = [
            self.add_shared(name, (num_heads, head_dim), torch.float8_e4m3fn)
            for name in ("k_workspace", "v_workspace")
            if workspace
        ]

    def write(
        self, index: int, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor | None
    ) -> None:
        assert v is not None
        for side, (values, codes) in enumerate(((k, self._k), (v, self._v))):
            packed, scales = quantize_nvfp4(values)
            put(codes[index], slots, packed)
            if self._linear:
                put(self._linear[side][index], slots, scales)
            if self._native:
                page, lane, column = self._native_position(slots, interleaved=side == 1)
                self._native[side][index][page, :, lane, column] = scales.transpose(1, 2)

    def read(self, layer_id: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        index, slots = self.index(layer_id), self.read_slots(slots)
        k, v = (
            dequantize_nvfp4(codes[index][slots], self._scales(index, slots, side))
            for side, codes in enumerate((self._k, self._v))
        )
        return k, v

    def fill_workspace(
        self, layer_id: int, slots: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Dequantise a layer's slots into the shared fp8 workspace; its K and V buffers."""
        if not self._workspace:
            raise PoolError(
                "this nvfp4 cache has no workspace", hint="build it with workspace=True"
            )
        for workspace, values in zip(self._workspace, self.read(layer_id, slots), strict=True):
            assert values is not None
            put(workspace, slots, values.to(torch.float8_e4m3fn))
        k, v = self._workspace
        return k, v

    def _scales(self, index: int, slots: torch.Tensor, side: int) -> torch.Tensor:
        """Scale bytes (tokens, heads, dim // 16) of one side, from the layout that is there."""
        if self._linear:
            return self._linear[side][index][slots]
        page, lane, column = self._native_position(slots, interleaved=side == 1)
        return self._native[side][index][page, :, lane, column].transpose(1, 2)

    def _native_position(
        self, slots: torch.Tensor, *, interleaved: bool
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Page, token lane and column, each (tokens, dim // 16), of every scale in the native layout.

        V interleaves four tokens: their scales fill one row of four times a quarter after another.
        """
        page, token = (slots // self.page_size)[:, None], (slots % self.page_size)[:, None]
        scale = torch.arange(self.head_dim // BLOCK, device=slots.device)[None, :]
        if not interleaved:
            return page, token, scale
        quarter = self.head_dim // NATIVE_DIM
        lane = token // NATIVE_TOKENS * NATIVE_TOKENS + scale // quarter
        return page, lane, scale % quarter * NATIVE_TOKENS + token % NATIVE_TOKENS
