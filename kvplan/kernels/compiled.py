"""How often each kernel was compiled in this process: once per page size is what is promised."""

from __future__ import annotations

from kvplan.kernels.alloc_decode import alloc_decode_kernel
from kvplan.kernels.alloc_extend import alloc_extend_kernel
from kvplan.kernels.decode_step import decode_step_kernel
from kvplan.kernels.unmap_pages import unmap_pages_kernel
from kvplan.kernels.write_rows import write_rows_kernel

KERNELS = {
    "alloc_extend": alloc_extend_kernel,
    "alloc_decode": alloc_decode_kernel,
    "decode_step": decode_step_kernel,
    "unmap_pages": unmap_pages_kernel,
    "write_rows": write_rows_kernel,
}


def compile_counts() -> dict[str, int]:
    """Compiled variants of each kernel, all devices; 0 in the interpreter, which compiles nothing."""
    return {
        name: sum(len(caches[0]) for caches in getattr(kernel, "device_caches", {}).values())
        for name, kernel in KERNELS.items()
    }
