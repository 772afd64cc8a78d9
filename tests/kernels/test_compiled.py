"""Kernels through the real compiler, without a device: every target, and one variant per page size."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest
import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kvplan.kernels.alloc_decode import alloc_decode
from kvplan.kernels.alloc_extend import alloc_extend
from kvplan.kernels.compiled import KERNELS, compile_counts
from kvplan.kernels.decode_step import decode_step
from kvplan.kernels.unmap_pages import unmap_pages
from kvplan.kernels.walk import REQUEST_TILE, TOKEN_TILE
from kvplan.kernels.write_rows import write_rows
from tests.kernels.conftest import INTERPRETED

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
TILES = {"REQUESTS": REQUEST_TILE, "TOKENS": TOKEN_TILE, "PAGES": 64, "OFFSETS": 32}

pytestmark = pytest.mark.skipif(
    INTERPRETED, reason="the compiler needs a run without TRITON_INTERPRET"
)


def source_of(kernel, page_size: int) -> ASTSource:
    constexprs = {
        name: value
        for name, value in {**TILES, "page_size": page_size}.items()
        if name in kernel.arg_names
    }
    types = {name: "*i64" if name.endswith("_ptr") else "i32" for name in kernel.arg_names}
    types |= {name: "*i32" for name in types if name == "req_to_token_ptr"}
    types |= dict.fromkeys(constexprs, "constexpr")
    return ASTSource(fn=kernel, signature=types, constexprs=constexprs)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_compiles_to_a_binary(kernel, target):
    compiled = triton.compile(source_of(KERNELS[kernel], 16), target=TARGETS[target])

    binary, assembly = ("hsaco", "amdgcn") if target == "gfx942" else ("cubin", "ptx")
    assert len(compiled.asm[binary]) > 0
    assert target in compiled.asm[assembly]


@pytest.mark.parametrize("page_size", [1, 24, 30])
@pytest.mark.parametrize("kernel", ["alloc_extend", "alloc_decode", "decode_step", "unmap_pages"])
def test_compiles_for_a_page_size_of_any_kind(kernel, page_size):
    compiled = triton.compile(source_of(KERNELS[kernel], page_size), target=TARGETS["sm_90"])

    assert len(compiled.asm["cubin"]) > 0


class Deviceless:
    """A driver that names a target to compile for and can run nothing."""

    def get_current_target(self) -> GPUTarget:
        return TARGETS["sm_90"]

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device


def compile_instead(run, *args, **options):
    return run(*args, **{**options, "warmup": True})


@pytest.fixture
def compile_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Launches compile, and stop there."""
    monkeypatch.setattr(triton.runtime.driver, "_active", Deviceless())
    for kernel in KERNELS.values():
        monkeypatch.setattr(kernel, "run", functools.partial(compile_instead, kernel.run))
        kernel.device_caches.clear()
    yield
    for kernel in KERNELS.values():
        kernel.device_caches.clear()


def unaligned(length: int, offset: int) -> Tensor:
    """A slice whose address is a multiple of 16 bytes only for even offsets."""
    return torch.zeros(length + offset, dtype=torch.int64)[offset:]


def launch_all(batch: int, new: int, offset: int, page_size: int) -> None:
    lens, num_tokens = unaligned(batch, offset), batch * new
    table = torch.zeros((batch + 1, new + offset), dtype=torch.int32)[:, offset:]
    alloc_extend(lens, lens, lens, unaligned(num_tokens, offset), page_size, num_tokens)
    alloc_decode(lens, lens, unaligned(batch, offset), page_size)
    decode_step(table, lens, lens, unaligned(batch, offset), page_size)
    write_rows(table, lens, lens, lens, unaligned(num_tokens, offset))
    unmap_pages(unaligned(batch, offset), unaligned(num_tokens, offset), page_size)


@pytest.mark.usefixtures("compile_only")
def test_one_compile_serves_every_batch_extend_length_and_slice():
    for page_size in (1, 16, 48):
        for batch, new in [(1, 1), (1, 16), (16, 1), (17, 100), (1024, 16), (8192, 3)]:
            for offset in (0, 1, 2):
                launch_all(batch, new, offset, page_size)

    per_page_size = dict.fromkeys(KERNELS, 3)
    assert compile_counts() == {**per_page_size, "write_rows": 1}
