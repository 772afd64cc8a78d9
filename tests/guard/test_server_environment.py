"""Variables of SGLang's environment, wherever a launch sets them."""

from __future__ import annotations

import pytest

from kvplan.errors import InputError
from kvplan.guard.launch import parse_launch, read_launches

SERVER = "python -m sglang.launch_server --model-path m"
RING = "SGLANG_HACK_FLASHMLA_BACKEND=unified_kv_triton"
COMPOSE = """services:
  a:
    environment:
      SGLANG_HACK_FLASHMLA_BACKEND: unified_kv_triton
    command: python -m sglang.launch_server --model-path m
"""
CLUSTER = """kind: Pod
metadata: {name: p}
spec:
  containers:
  - name: c
    command: [python, -m, sglang.launch_server, --model-path, m]
    env:
    - {name: SGLANG_HACK_FLASHMLA_BACKEND, value: unified_kv_triton}
"""
IMAGE = f"FROM sglang\nENV {RING}\nCMD {SERVER}\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{RING} {SERVER}",
        f"export {RING}\n{SERVER}",
        f"{RING}\nexport SGLANG_HACK_FLASHMLA_BACKEND\n{SERVER}",
        f"export OTHER=1\nenv A=b {RING} {SERVER}",
        f"docker run -e {RING} sglang {SERVER}",
        f"docker run --env={RING} sglang bash -c '{SERVER}'",
        f"export SGLANG_HACK_FLASHMLA_BACKEND=auto\n{RING} {SERVER}",
    ],
)
def test_a_command_s_variables_are_read(text):
    assert parse_launch(text).args == {"dsv4_unified_kv": True}


@pytest.mark.parametrize(
    "text",
    [SERVER, f"{RING}\n{SERVER}", f"{SERVER}\nexport {RING}", f"OTHER_{RING} {SERVER}"],
)
def test_what_is_not_in_its_environment_has_no_say(text):
    assert parse_launch(text).args == {}


@pytest.mark.parametrize(
    ("name", "text"), [("compose.yaml", COMPOSE), ("pod.yaml", CLUSTER), ("Dockerfile", IMAGE)]
)
def test_a_container_s_variables_are_read(name, text, tmp_path):
    path = tmp_path / name
    path.write_text(text)

    (launch,) = read_launches(path)

    assert launch.args == {"dsv4_unified_kv": True}
    assert launch.places["dsv4_unified_kv"].startswith(str(path))


@pytest.mark.parametrize(
    ("assignment", "args"),
    [
        ("SGLANG_PP_LAYER_PARTITION=10,22", {"pp_layer_partition": [10, 22]}),
        ("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=Yes", {"allow_longer_context": True}),
        ("SGLANG_ENABLE_POST_CAPTURE_KV_SIZING=0", {"post_capture_sizing": False}),
        ("SGLANG_HACK_FLASHMLA_BACKEND=auto", {"dsv4_unified_kv": False}),
        ("SGLANG_DSV4_UNIFIED_KV_FP8=1", {"dsv4_unified_kv_fp8": True}),
        ("SGLANG_MAMBA_SSM_DTYPE=bfloat16", {"mamba_ssm_dtype": "bfloat16"}),
        ("SGLANG_LOG_LEVEL=1", {}),
    ],
)
def test_each_variable_is_a_server_argument(assignment, args):
    assert parse_launch(f"{assignment} {SERVER}").args == args


def test_a_flag_counts_before_a_variable():
    text = f"SGLANG_MAMBA_SSM_DTYPE=bfloat16 {SERVER} --mamba-ssm-dtype float32"

    assert parse_launch(text).args == {"mamba_ssm_dtype": "float32"}


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("SGLANG_DSV4_UNIFIED_KV_FP8=maybe", "the engine takes its default"),
        ("SGLANG_MAMBA_SSM_DTYPE=int8", "the engine takes its default"),
        ("SGLANG_DSV4_UNIFIED_KV_FP8=$FP8", "known only when it runs"),
    ],
)
def test_a_value_that_is_not_taken_is_a_remark(assignment, said):
    launch = parse_launch(f"{assignment} {SERVER}")

    assert launch.args == {}
    assert [said in remark.text for remark in launch.warnings] == [True]


def test_a_variable_under_a_condition_says_so():
    launch = parse_launch(f"if [ -n $A ]; then\nexport {RING}\nfi\n{SERVER}")

    assert launch.args == {"dsv4_unified_kv": True}
    assert "under a condition" in launch.warnings[0].text


def test_variables_beside_the_plan_are_named():
    launch = parse_launch(f"SGLANG_OPT_USE_ONLINE_COMPRESS=1 {SERVER}")

    assert launch.beside == {"SGLANG_OPT_USE_ONLINE_COMPRESS": "1"}


@pytest.mark.parametrize(
    "name", ["SGLANG_RETRACT_DECODE_STEPS", "IN_BATCH_PREFIX_CACHING_CHECK_THRESHOLD"]
)
def test_variables_of_the_scheduler_are_kept_for_replays(name):
    launch = parse_launch(f"{name}=5 {SERVER}")

    assert (launch.scheduling, launch.beside) == ({name: "5"}, {})


def test_stages_that_the_engine_cannot_read_are_refused():
    with pytest.raises(InputError, match="layer counts like 16,16"):
        parse_launch(f"SGLANG_PP_LAYER_PARTITION=10,x {SERVER}")
