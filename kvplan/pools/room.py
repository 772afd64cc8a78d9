"""How much memory a device has left, asked before anything large is built on it."""

from __future__ import annotations

from pathlib import Path

import torch

from kvplan.errors import DeviceError
from kvplan.units import gib

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
KIB = 1024


def check_room(device: torch.device, num_bytes: int) -> None:
    """Refuse to build num_bytes where they do not fit; a host would rather kill the process."""
    free = free_bytes(device)
    if free is not None and num_bytes > free:
        raise DeviceError(
            f"{device} has {gib(free):.2f} GiB free, the pools take {gib(num_bytes):.2f} GiB",
            hint="use --device meta for the layout alone, or --kv-scale for small buffers",
        )


def free_bytes(device: torch.device) -> int | None:
    """Free bytes of a device; None where nothing is stored or nobody knows."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "cpu":
        return free_host_bytes()
    return None


def free_host_bytes(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> int | None:
    """What the kernel can still give, under the control group's limit if there is one."""
    known = [bytes_ for bytes_ in (available(meminfo), below_limit(cgroup)) if bytes_ is not None]
    return min(known, default=None)


def available(meminfo: Path) -> int | None:
    """MemAvailable of /proc/meminfo."""
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * KIB
    return None


def below_limit(cgroup: Path) -> int | None:
    """Bytes between a control group's use and its limit; None without a limit."""
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
    except OSError:
        return None
    return None if limit == "max" else max(0, int(limit) - used)
