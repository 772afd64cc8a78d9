"""The GitHub Action and the pre-commit hooks name what exists, and the action's script does what it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from kvplan import yamlfile
from tests.conftest import REPOSITORY
from tests.guard.formats import read_github, read_junit

ACTION = yaml.safe_load((REPOSITORY / "action.yml").read_text("utf-8"))
EXPRESSION = re.compile(r"\$\{\{ (?:inputs\.([\w-]+)|steps\.(\w+)\.outputs\.[\w-]+) \}\}")


@pytest.fixture
def run_step(tmp_path):
    """Run the action's last step as a runner would: (exit code, stdout, summary, outputs)."""
    (tmp_path / "kvplan/bin").mkdir(parents=True)
    command = tmp_path / "kvplan/bin/kvplan"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m kvplan "$@"\n')
    command.chmod(0o755)
    step = ACTION["runs"]["steps"][-1]

    def run(**inputs: str) -> tuple[int, str, str, str]:
        given = {
            name: value["default"] for name, value in ACTION["inputs"].items() if "default" in value
        } | inputs
        step_env = {
            name: EXPRESSION.sub(lambda match: given[match[1]], value)
            for name, value in step["env"].items()
        }
        files = {name: tmp_path / name for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
        for file in files.values():
            file.write_text("")
        done = subprocess.run(
            [
                shutil.which("bash") or "bash",
                "--noprofile",
                "--norc",
                "-eo",
                "pipefail",
                "-c",
                step["run"],
            ],
            env={
                **os.environ,
                **step_env,
                "RUNNER_TEMP": str(tmp_path),
                **{k: str(v) for k, v in files.items()},
            },
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
        summary, outputs = (file.read_text("utf-8") for file in files.values())
        return done.returncode, done.stdout, summary, outputs

    return run


def test_the_action_uses_the_inputs_and_steps_that_it_has():
    text = (REPOSITORY / "action.yml").read_text("utf-8")
    used = {match[1] for match in EXPRESSION.finditer(text) if match[1]}
    steps = {match[2] for match in EXPRESSION.finditer(text) if match[2]}

    assert used == set(ACTION["inputs"])
    assert steps <= {step.get("id") for step in ACTION["runs"]["steps"]}
    assert len(EXPRESSION.findall(text)) == text.count("${{")
    assert ACTION["runs"]["using"] == "composite"
    assert all(step.get("uses") or step["shell"] == "bash" for step in ACTION["runs"]["steps"])
    # inputs reach the script as variables alone: nothing of theirs is read as code
    assert all("${{" not in step.get("run", "") for step in ACTION["runs"]["steps"])
    assert all(value["description"] for value in ACTION["inputs"].values())


def test_budgets_that_hold_pass_with_a_summary(run_step):
    code, out, summary, outputs = run_step(files="presets/budgets/*.yaml")

    assert code == 0
    assert [each.level for each in read_github(out)] == ["notice"]
    assert summary.startswith("## kvplan check: 3 budgets held\n")
    assert outputs == "code=0\n"


def test_a_broken_budget_fails_the_job_with_its_files_written(run_step, tmp_path):
    code, out, summary, outputs = run_step(
        files="tests/data/budgets/broken.yaml\ntests/data/budgets/fleet.yaml",
        lock="docs/examples/budgets/kvplan.lock.json",
        sarif=str(tmp_path / "kvplan.sarif"),
        junit=str(tmp_path / "kvplan.xml"),
    )

    assert (code, outputs) == (1, "code=1\n")
    assert read_github(out)[0].properties["file"] == "tests/data/budgets/broken.yaml"
    assert "**broken**" in summary
    assert "min_tokens" in (tmp_path / "kvplan.sarif").read_text()
    assert read_junit((tmp_path / "kvplan.xml").read_text()).attrib["errors"] == "0"


def test_names_are_never_run_as_code(run_step):
    code, out, summary, _ = run_step(files="$(touch${IFS}pwned);x", summary="false")

    assert code == 2
    assert "cannot read" in out
    assert summary == ""
    assert not (REPOSITORY / "pwned").exists()


def test_the_hooks_run_commands_that_exist(kvplan):
    hooks = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text("utf-8"))

    assert [hook["id"] for hook in hooks] == ["kvplan-check", "kvplan-lock"]
    for hook in hooks:
        assert hook["language"] == "python"
        program, command, *options = hook["entry"].split()
        assert program == "kvplan"
        usage = kvplan(command, "--help")[1]
        assert all(option in usage for option in options if option.startswith("--"))
        pattern = re.compile(hook["files"])
        assert pattern.search("serving/budgets/chat.yaml")
        assert not pattern.search("serving/deploy.yaml")


@pytest.mark.parametrize(
    ("words", "position", "offered"),
    [
        ("kvplan ch", 1, ["check"]),
        ("kvplan check --format ", 3, ["text", "json", "junit", "github", "sarif", "md"]),
        ("kvplan schema bud", 2, ["budget"]),
    ],
)
def test_the_shell_completes(words, position, offered):
    completion = {
        "_KVPLAN_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(position),
    }
    code = "import sys; from kvplan.commands.app import main; sys.exit(main([]))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, **completion},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.split() == offered


@pytest.mark.parametrize("name", ["action.yml", ".pre-commit-hooks.yaml"])
def test_the_files_are_plain_yaml(name):
    """Without the spellings on which YAML readers disagree."""
    yamlfile.load(REPOSITORY / name)
