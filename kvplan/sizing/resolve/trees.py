"""Which trees of draft tokens UNO can verify."""

from __future__ import annotations

from kvplan.errors import CombinationError

MOST_NODES = 128
MOST_FRONTIER = 2048


def check_uno_tree(width: int, topk: int, steps: int | None) -> int:
    """Steps of a tree of `width` verified nodes; CombinationError where it cannot be built."""
    if steps is None or steps < 1:
        raise CombinationError(
            "a UNO tree needs speculative_num_steps of 1 or more",
            hint="or speculative_eagle_topk 1",
        )
    problem = tree_problem(width, topk, steps)
    if problem is not None:
        raise CombinationError(f"UNO cannot verify {width} nodes: {problem}")
    return steps


def tree_problem(width: int, topk: int, steps: int) -> str | None:
    """What is wrong with a tree, None if nothing is."""
    if width < steps + 1:
        return f"{steps} steps draft {steps + 1}"
    if width > MOST_NODES:
        return f"at most {MOST_NODES} are supported"
    if width * topk > MOST_FRONTIER:
        return f"nodes times topk is at most {MOST_FRONTIER}"
    nodes, level = 1, 1
    for _ in range(steps):
        level *= topk
        nodes += level
        if nodes >= width:
            break
    if width > nodes:
        return f"{steps} steps of {topk} branches have {nodes}"
    parents = topk * max(steps - 1, 0) + 1
    if width - 1 > parents:
        return f"their parents fit {parents + 1}"
    return None
