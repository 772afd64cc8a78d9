"""Pools of each kind on the CPU, and on a GPU where a test asks for one."""

from __future__ import annotations

import pytest
import torch

from kvplan.pools.base import KvPool
from kvplan.pools.storage import Storage, open_storage
from tests.pools.kinds import KINDS


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Small tensors gain nothing from more."""
    torch.set_num_threads(1)


@pytest.fixture
def storage() -> Storage:
    return open_storage("cpu")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def anywhere(request: pytest.FixtureRequest) -> Storage:
    """Storage on the CPU, and on a GPU in a run of the gpu marker."""
    return open_storage(request.param)


@pytest.fixture(params=sorted(KINDS))
def pool(request: pytest.FixtureRequest, anywhere: Storage) -> KvPool:
    """One small pool of each kind."""
    return KINDS[request.param](anywhere)
