"""A grid holds every combination once, in the order of its file; what a file may not ask for is refused."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import InputError
from kvplan.search.axis import Axis
from kvplan.search.grid import Grid
from kvplan.search.read_sweep import read_sweep

BASE = "model: llama-3.1-8b\ngpu: h100\n"


def grid_of(lengths):
    return Grid(
        tuple(
            Axis(f"axis{place}", "server", "integer", tuple(range(length)), (), ())
            for place, length in enumerate(lengths)
        )
    )


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.data())
def test_any_stretch_of_a_grid_is_that_stretch_of_the_product(lengths, data):
    grid = grid_of(lengths)
    start = data.draw(st.integers(0, grid.count))
    stop = data.draw(st.integers(start, grid.count))

    product = itertools.product(*(range(length) for length in lengths))

    assert list(grid.combinations(start, stop)) == list(itertools.islice(product, start, stop))


def read(folder: Path, text: str):
    file = folder / "sweep.yaml"
    file.write_text(text)
    return read_sweep(file)


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ("page_size: 16", (16,)),
        ("page_size: [16, null, 1]", (16, None, 1)),
        ("page_size: {values: [1, 64]}", (1, 64)),
        ("page_size: {from: 1, to: 64, factor: 2}", (1, 2, 4, 8, 16, 32, 64)),
        ("context_length: {from: 1000, to: 2600, step: 800}", (1000, 1800, 2600)),
        ("mem_fraction_static: {from: 0.8, to: 0.9, step: 0.02}", (0.8, 0.82, 0.84, 0.86, 0.88, 0.9)),
        ("mem_fraction_static: {from: 0.1, to: 0.35, step: 0.1}", (0.1, 0.2, 0.3)),
        ("cuda_graph_bs_decode: [1, 2, 4]", ((1, 2, 4),)),
        ("cuda_graph_bs_decode: [[1, 2], [1, 2, 4], null]", ((1, 2), (1, 2, 4), None)),
        ("pp_layer_partition: {values: [[10, 22]]}", ((10, 22),)),
        ("disable_radix_cache: [true, false]", (True, False)),
    ],
)  # fmt: skip
def test_values_are_listed_or_ranged(tmp_path: Path, written: str, values: tuple):
    sweep = read(tmp_path, f"{BASE}server:\n  {written}\n")

    axis = next(axis for axis in sweep.grid.axes if axis.section == "server")
    assert axis.values == values
    assert [type(value) for value in axis.values] == [type(value) for value in values]


REFUSED = {
    "server: {page_size: [1, 16, 1]}": ("sweep.yaml:3:29: 'page_size' has 1 twice", None),
    "server: {page_size: []}": ("sweep.yaml:3:21: 'page_size' must be a list of length >= 1", None),
    "server: {page_size: x}": ("sweep.yaml:3:21: 'page_size' must be an integer or", None),
    "server: {page_size: [1, x]}": ("sweep.yaml:3:25: 'server.page_size[1]' must be an integer or null", None),
    "server: {page_size: {from: 1}}": ("the range of 'page_size' is not complete", "{values:"),
    "server: {page_size: {from: 1, to: 9}}": ("the range of 'page_size' is not complete", None),
    "server: {page_size: {from: 9, to: 1, step: 1}}": ("from 9 to 1 by 1 is empty", "steps go up"),
    "server: {page_size: {from: 1, to: 9, step: 0}}": ("from 1 to 9 by 0 is empty", "steps go up"),
    "server: {page_size: {from: 1, to: 9, factor: 1}}": ("by a factor of 1 is empty", "at least"),
    "server: {page_size: {from: 1, to: 2, step: 0.5}}": ("must be an integer", None),
    "server: {page_size: {from: 0, to: 2, step: 1}}": ("must be an integer >= 1", None),
    "server: {page_size: {values: [1], from: 2}}": ("has listed values and a range", "keep one"),
    "server: {context_length: {from: 1, to: 1000000, step: 1}}": ("more than 100,000 values", None),
    "server: {kv_cache_dtype: {from: 1, to: 2, step: 1}}": ("takes no numbers", None),
    "server: {kv_cache_dtype: fp8}": ("unknown value 'fp8' of 'kv_cache_dtype'", "did you mean"),
    "server: {page_sise: 1}": ("sweep.yaml:3:10: unknown field 'page_sise'", "'page_size'"),
    "server: {cuda_graph_bs_decode: [1, [2]]}": ("mixes numbers and lists", "several are"),
    "sever: {}": ("sweep.yaml:3:1: unknown field 'sever'", "did you mean 'server'?"),
    "memory: {weights_gib: -1}": ("sweep.yaml:3:23: 'weights_gib' must be a number >= 0", None),
    "parallel: [tp2, tp3]": ("sweep.yaml:3:17: unknown parallel 'tp3'", "did you mean"),
    "speculative: eagle9": ("sweep.yaml:3:14: unknown speculative 'eagle9'", None),
    "draft: nothing": ("sweep.yaml:3:8: unknown model 'nothing'", None),
    "set: {layers: 1}": ("sweep.yaml:3:7: 'layers' is no field of a model", "model.num_layers"),
    "set: {model.num_layer: 1}": ("sweep.yaml:3:24: llama-3.1-8b: unknown field", "'num_layers'"),
    "set: {model.num_layers: [4, x]}": ("sweep.yaml:3:29: llama-3.1-8b: 'num_layers' must", None),
    "set: {gpu.memory_mib: 1}": ("sweep.yaml:3:23: H100 80GB: 'memory_mib' must be", None),
    "columns: [tokens, tokns]": ("sweep.yaml:3:19: unknown column 'tokns'", "'tokens'"),
    "columns: [tokens, tokens]": ("sweep.yaml:3:19: 'tokens' is given twice", None),
    "pareto: {maximise: status}": ("unknown column 'status'", None),
    "pareto: {maximise: resolved_kv_cache_dtype}": ("sweep.yaml:3:20: ", None),
    "pareto: {}": ("sweep.yaml:3:9: the front has no objective", "add 'maximise: total_tokens'"),
    "pareto: {maximise: gpus, minimise: gpus}": ("sweep.yaml:3:9: 'gpus' is given twice", None),
    "where: tokns > 3": ("sweep.yaml:3:8: unknown column 'tokns'", "did you mean 'tokens'?"),
    "where: [gpus < 8, 'tokens >']": ("sweep.yaml:3:19: the condition 'tokens >' cannot", None),
    "launch: echo": ("sweep.yaml:3:", None),
    "launch_name: web": ("sweep.yaml:3:14: 'launch_name' chooses a server of 'launch_file'", None),
}  # fmt: skip


@pytest.mark.parametrize("line", REFUSED)
def test_a_bad_file_is_refused_at_its_line(tmp_path: Path, line: str):
    problem, hint = REFUSED[line]

    with pytest.raises(InputError) as refusal:
        read(tmp_path, f"{BASE}{line}\n")

    assert problem in str(refusal.value)
    assert str(refusal.value).startswith(f"{tmp_path}/sweep.yaml:3:")
    if hint is not None:
        assert hint in (refusal.value.hint or "")


def test_a_grid_without_end_is_refused_with_its_count(tmp_path: Path):
    ranges = "".join(
        f"  {name}: {{from: 1, to: 400, step: 1}}\n"
        for name in ("page_size", "tp_size", "max_running_requests")
    )

    with pytest.raises(InputError, match=r"64,000,000 combinations \(400 × 400 × 400\)"):
        read(tmp_path, f"{BASE}server:\n{ranges}")


def test_a_file_without_a_model_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="no model is named"):
        read(tmp_path, "gpu: h100\n")


def test_paths_count_from_the_file_and_its_launch_gives_what_it_leaves_open(tmp_path: Path):
    (tmp_path / "card.yaml").write_text("name: small\nmemory_mib: 40000\nsm: 90\n")
    (tmp_path / "run.sh").write_text(
        "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 2 --page-size 16\n"
    )

    sweep = read(tmp_path, "gpu: card.yaml\nlaunch_file: run.sh\nserver: {page_size: [null, 64]}\n")

    assert sweep.presets.gpus["card.yaml"].memory_mib == 40000
    assert sweep.base == {"tp_size": 2, "page_size": 16}
    assert list(sweep.presets.models) == ["Qwen/Qwen3-8B"]
