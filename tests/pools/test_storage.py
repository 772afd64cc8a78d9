"""Devices, the two optional switches, and what is refused."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import pytest
import torch

from kvplan.errors import DeviceError, MissingExtra
from kvplan.pools.storage import Storage, load_saver, open_storage

without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")


@without_cuda
def test_cuda_that_is_not_there_is_refused():
    with pytest.raises(DeviceError, match="CUDA was asked for and there is none") as refusal:
        open_storage("cuda")
    assert "--device cpu" in str(refusal.value.hint)
    assert refusal.value.exit_code == 2


@without_cuda
def test_auto_is_the_cpu_without_cuda():
    assert open_storage("auto").device == torch.device("cpu")


@pytest.mark.parametrize("device", ["gpu", "xpu", "cuda:x", ""])
def test_devices_that_pools_do_not_know_are_refused(device):
    with pytest.raises(DeviceError, match=r"device|built on"):
        open_storage(device)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("switch", ["custom_pool", "releasable"])
def test_the_switches_need_cuda(device, switch):
    with pytest.raises(
        DeviceError, match=f"{switch} needs a CUDA device, the pools are on {device}"
    ):
        open_storage(device, **{switch: True})


def test_the_switches_are_off_and_without_effect():
    storage = open_storage("cpu")

    assert storage.mem_pool is None
    assert storage.saver is None
    with pytest.raises(DeviceError, match="not releasable") as refusal:
        storage.release()
    assert "releasable=True" in str(refusal.value.hint)


@pytest.mark.parametrize("shape", [(10**15,), (2**62,), (2**40, 2**40)])
def test_a_tensor_without_room_is_a_device_error(shape):
    with pytest.raises(DeviceError, match="cpu has no room for a tensor") as refusal:
        open_storage("cpu").zeros(shape, torch.uint8)
    assert "--device meta" in str(refusal.value.hint)


@pytest.mark.parametrize(
    "dtype",
    [torch.bfloat16, torch.uint8, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2, torch.int64],
)
def test_tensors_are_zeroed_in_any_dtype(dtype):
    tensor = open_storage("cpu").zeros((300, 3), dtype)

    assert (tensor.dtype, tuple(tensor.shape)) == (dtype, (300, 3))
    assert not tensor.view(torch.uint8).any()


class FakeSaver:
    """torch_memory_saver's interface, recording what it is asked."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    @contextlib.contextmanager
    def region(self, tag: str) -> Iterator[None]:
        self.calls.append(f"enter {tag}")
        yield
        self.calls.append(f"leave {tag}")

    def pause(self, tag: str) -> None:
        self.calls.append(f"pause {tag}")

    def resume(self, tag: str) -> None:
        self.calls.append(f"resume {tag}")


def test_a_releasable_region_wraps_every_allocation():
    saver = FakeSaver()
    storage = Storage(torch.device("cpu"), saver=saver)

    storage.zeros((4,), torch.uint8)
    storage.release()
    storage.resume()

    assert saver.calls == ["enter kv_cache", "leave kv_cache", "pause kv_cache", "resume kv_cache"]


def test_a_missing_saver_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_memory_saver", None)

    with pytest.raises(MissingExtra, match="torch_memory_saver, which is not installed"):
        load_saver()


@pytest.mark.gpu
def test_a_custom_pool_holds_the_tensors():
    storage = open_storage("cuda", custom_pool=True)
    tensor = storage.zeros((1 << 20,), torch.uint8)

    segments = storage.mem_pool.snapshot()
    inside = [
        segment
        for segment in segments
        if segment["address"] <= tensor.data_ptr() < segment["address"] + segment["total_size"]
    ]
    assert len(inside) == 1


@pytest.mark.gpu
def test_a_full_gpu_is_a_device_error():
    storage = open_storage("cuda")
    with pytest.raises(DeviceError, match="no room for a tensor"):
        storage.zeros((torch.cuda.mem_get_info()[1] * 2,), torch.uint8)
