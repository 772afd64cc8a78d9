"""A written launch is read alike by every command: what it says, what it leaves out, what it warns of."""

from __future__ import annotations

import json

import pytest

from kvplan.guard.server_flags import arguments

SAMPLES = {"flag": "", "switch": "", "int": "2", "text": "x", "json": "'{}'"}
BESIDE = [name for name, argument in arguments().items() if argument.role in {"beside", "memory"}]
WARNED = "flag: '--contxt-length 4096' is left out; did you mean '--context-length'?"


def flag(name: str) -> str:
    argument = arguments()[name]
    value = argument.choices[0] if argument.choices else SAMPLES.get(argument.kind, "1")
    return f"{argument.flags[0]} {value}"


@pytest.fixture
def ways(tmp_path):
    """Command lines that read one launch, by command."""

    def make(line: str) -> dict[str, list[str]]:
        script, budget = tmp_path / "run.sh", tmp_path / "budget.yaml"
        script.write_text(line + "\n")
        budget.write_text(json.dumps({"gpu": "h100", "launch": line}))
        find = ("--find", "page-size", "--tokens", "1000")
        return {
            "size": ["size", "--launch", line, "--gpu", "h100"],
            "size file": ["size", "--launch-file", str(script), "--gpu", "h100"],
            "fit": ["fit", "--launch", line, "--gpu", "h100", *find],
            "inspect": ["inspect", "--launch", line, "--gpu", "h100"],
            "check": ["check", str(budget)],
            "sweep": ["sweep", str(budget)],
            "diff": ["diff", str(script), str(budget), "--gpu", "h100"],
        }

    return make


@pytest.mark.parametrize("name", [*BESIDE, "device"])
def test_an_argument_that_no_plan_follows_is_accepted_by_every_command(kvplan, ways, name):
    for command, argv in ways(f"sglang serve Qwen/Qwen3-8B {flag(name)}").items():
        code, out, err = kvplan(*argv)

        assert (code, err) == (0, ""), command
        if name != "device":
            assert f"'{name}' " in out, command


def test_an_unknown_flag_is_warned_of_with_the_nearest_name_by_every_command(kvplan, ways):
    for command, argv in ways("sglang serve Qwen/Qwen3-8B --contxt-length 4096").items():
        code, out, _ = kvplan(*argv)

        assert code == 0, command
        assert WARNED in " ".join(out.split()), command


@pytest.mark.parametrize(
    "content",
    [
        {"model-path": "Qwen/Qwen3-8B", "tp-size": 2},
        {"tp_size": 2},
        {"model": "qwen3-8b", "gpu": "h100", "server": {"tp_size": 2}},
        {"kind": "Pod", "spec": {"containers": [
            {"name": "a", "command": ["sglang", "serve", "Qwen/Qwen3-8B", "--tp", "2"]},
        ]}},
    ],
)  # fmt: skip
def test_a_launch_in_json_is_that_in_yaml(kvplan, tmp_path, content):
    path = tmp_path / "launch.json"
    path.write_text(json.dumps(content))
    code, out, err = kvplan(
        "diff", path, "qwen3-8b@h100,tp_size=2", "--model", "qwen3-8b", "--gpu", "h100"
    )

    assert (code, err) == (0, "")
    assert "no figure moves" in out


def test_flags_without_a_say_are_listed(kvplan):
    line = "sglang serve Qwen/Qwen3-8B --port 3 --enable-metrics --device cuda"
    _, out, _ = kvplan("size", "--launch", line, "--gpu", "h100")

    assert "no say in sizing: port, enable_metrics, device" in out


def test_the_model_may_be_a_server_flag_of_this_command_line(kvplan):
    given = kvplan("size", "--model-path", "Qwen/Qwen3-8B", "--gpu", "h100", "--json")

    assert given == kvplan("size", "Qwen/Qwen3-8B", "--gpu", "h100", "--json")
