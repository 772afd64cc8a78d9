"""Every resolved value says where it came from, and the plan says what it does not follow."""

from __future__ import annotations

import ast
import re

import msgspec
import pytest

from kvplan.sizing.provenance import Origin
from kvplan.sizing.resolve.resolve import resolve
from kvplan.spec.server import server_args
from tests.conftest import REPOSITORY
from tests.sizing.resolve.golden import FILES, records, resolve_case
from tests.sizing.resolve.launches import A100, B200, H100, MI300X, dense, hybrid, latent

# fields that carry a launch's own words or that other fields explain
UNEXPLAINED = {
    "prefill_attention_backend",
    "decode_attention_backend",
    "draft_attention_backend",
    "draft_kv_cache_dtype",
    "kv_recipe",
    "asked",
    "swa_ratio_given",
    "mamba_overlap_asked",
    "mamba_ssm_dtype",
    "disaggregation_mode",
    "dsa_raw_layout",
    "two_pools",
    "uniform_latents",
    "gpu_sm",
    "multimodal_reservation_mib",
    "pool_refusal",
    "not_modelled",
    "warnings",
    "provenance",
}


def run(args, model=None, gpu=H100, **more):
    return resolve(server_args(args), model or dense(), gpu, **more)


@pytest.mark.parametrize("model", [dense(), latent(), hybrid()])
def test_every_value_of_a_bare_launch_has_an_origin(model):
    resolved = run({}, model)

    explained = set(resolved.provenance)

    assert set(resolved.__struct_fields__) - UNEXPLAINED <= explained
    assert all(origin.source != "given" for origin in resolved.provenance.values())


def test_given_values_say_so_and_presets_too():
    args = {"page_size": 16, "mem_fraction_static": 0.8, "kv_cache_dtype": "fp8_e4m3"}

    origins = run(args, preset_fields={"page_size", "attention_backend"}).provenance

    assert str(origins["mem_fraction_static"]) == "given"
    assert str(origins["kv_cache_dtype"]) == "given"
    assert str(origins["page_size"]) == "from a preset"
    assert origins["attention_backend"].source == "default"


@pytest.mark.parametrize(
    ("args", "model", "gpu", "field", "text"),
    [
        (
            {},
            dense(),
            H100,
            "chunked_prefill_size",
            "engine default (chunk-by-memory): 81559 MiB card",
        ),
        (
            {"tp_size": 2, "attn_dp_size": 2},
            dense(),
            H100,
            "chunked_prefill_size",
            "derived (chunk-over-dp): 8192 // 2",
        ),
        (
            {},
            dense(),
            H100,
            "mem_fraction_static",
            "engine default (mem-fraction): round((81559 - 13440) / 81559, 3)",
        ),
        (
            {"page_size": 1},
            dense(),
            B200,
            "page_size",
            "engine default (page-by-backend): trtllm_mha takes 16 or 32 or 64 or 128, not 1",
        ),
        ({}, dense(), A100, "attention_backend", "engine default (backend-by-card): MHA on sm80"),
        (
            {},
            dense(),
            MI300X,
            "attention_backend",
            "engine default (backend-by-card): MHA on hip, assumed",
        ),
        (
            {"pp_size": 2},
            dense(),
            H100,
            "overlap_schedule",
            "derived (overlap): pipeline parallelism runs without it",
        ),
        (
            {"tp_size": 8, "attn_dp_size": 2},
            dense(),
            H100,
            "widths",
            "derived (parallel): attn_tp = 8 // 2 // 1",
        ),
    ],
)
def test_origins_read_as_sentences(args, model, gpu, field, text):
    assert str(run(args, model, gpu).provenance[field]) == text


@pytest.mark.parametrize("name", FILES)
def test_origins_of_recorded_launches_can_be_printed(name, shared):
    for case, answer in records(shared, name):
        if "error" not in answer:
            assert all(str(origin) for origin in resolve_case(case).provenance.values())


def test_the_page_of_rules_lists_each_rule_that_an_origin_names():
    page = (REPOSITORY / "docs" / "defaults.md").read_text()
    listed = set(re.findall(r"^\| `([a-z0-9-]+)` \|", page, re.MULTILINE))

    named = {
        rule.value
        for path in (REPOSITORY / "kvplan" / "sizing").rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Origin"
        for rule in call.args[1:2]
        if isinstance(rule, ast.Constant)
    }

    assert named == listed


def test_an_origin_survives_json():
    origin = Origin("derived", "chunk-over-dp", "{0} // {1}", (8192, 2))

    back = msgspec.json.decode(msgspec.json.encode(origin), type=Origin)

    assert str(back) == str(origin)


@pytest.mark.parametrize(
    ("args", "model", "named"),
    [
        ({}, dense(), ()),
        ({"post_capture_sizing": True}, dense(), ("post_capture_sizing",)),
        ({}, dense("MuseSparkForConditionalGeneration"), ("post_capture_sizing",)),
        ({"post_capture_sizing": False}, dense("MuseSparkForConditionalGeneration"), ()),
        (
            {"enable_linear_replayssm": True, "enable_int8_mamba_checkpoint": True},
            hybrid(),
            ("enable_linear_replayssm", "enable_int8_mamba_checkpoint"),
        ),
    ],
)
def test_settings_that_a_plan_does_not_follow_are_named(args, model, named):
    assert run(args, model).not_modelled == named


@pytest.mark.parametrize(
    ("args", "model", "gpu", "warned"),
    [
        ({"attention_backend": "fa3"}, dense(), B200, "fa3"),
        ({"attention_backend": "fa3"}, latent(), A100, "fa3"),
        ({"attention_backend": "fa3"}, dense(), A100, None),
        ({"attention_backend": "trtllm_mha"}, latent(), B200, "latent attention"),
        ({"attention_backend": "flashmla"}, dense(), H100, "latent attention"),
        ({"attention_backend": "fa3"}, hybrid(), B200, "fa3"),
        ({}, dense(), H100, None),
    ],
)
def test_backends_that_fail_after_sizing_are_warned_of(args, model, gpu, warned):
    found = run(args, model, gpu).warnings

    assert any(warned in line for line in found) if warned else found == ()
