"""Free memory as the kernel reports it, and builds refused before they start."""

from __future__ import annotations

import pytest
import torch

from kvplan.errors import DeviceError
from kvplan.pools.room import check_room, free_bytes, free_host_bytes

MEMINFO = "MemTotal:       1000 kB\nMemAvailable:    600 kB\n"


@pytest.mark.parametrize(
    ("limit", "used", "free"),
    [
        ("max", "100", 600 * 1024),
        ("500000", "100000", 400_000),
        ("1", "5", 0),
        (None, None, 614_400),
    ],
)
def test_free_memory_is_the_smaller_of_kernel_and_control_group(tmp_path, limit, used, free):
    (tmp_path / "meminfo").write_text(MEMINFO)
    if limit is not None:
        (tmp_path / "memory.max").write_text(limit + "\n")
        (tmp_path / "memory.current").write_text(used + "\n")

    assert free_host_bytes(tmp_path / "meminfo", tmp_path) == free


def test_a_machine_that_tells_nothing_is_not_guessed_at(tmp_path):
    assert free_host_bytes(tmp_path / "meminfo", tmp_path) is None


def test_pools_larger_than_the_machine_are_refused_with_both_figures():
    device = torch.device("cpu")
    assert free_bytes(device)

    with pytest.raises(DeviceError, match=r"cpu has .* GiB free, the pools take 931\.32 GiB"):
        check_room(device, 10**12)
    check_room(torch.device("meta"), 10**15)
    check_room(device, 1)
