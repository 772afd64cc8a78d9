"""Where the kernels run: Triton's interpreter in its own pytest run, or a CUDA device."""

from __future__ import annotations

import os

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """The device of the tensors that the kernels get."""
    where = str(request.param)
    if where == "cuda":
        require_cuda()
    elif not INTERPRETED:
        pytest.skip("interpreted kernels need TRITON_INTERPRET=1 before triton is imported")
    return where


@pytest.fixture
def cuda() -> str:
    """A CUDA device with compiled kernels."""
    require_cuda()
    return "cuda"


def require_cuda() -> None:
    if INTERPRETED:
        pytest.skip("compiled kernels need a run without TRITON_INTERPRET")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
