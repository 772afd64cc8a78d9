"""One broken check in every format, equal to the recorded bytes and valid in its own grammar."""

from __future__ import annotations

import json
import re

import jsonschema  # type: ignore[import-untyped]
import pytest

from tests.conftest import REPOSITORY
from tests.guard.formats import read_github, read_junit

FILES = (
    "tests/data/budgets/broken.yaml",
    "tests/data/budgets/fleet.yaml",
    "tests/data/budgets/served.yaml",
    "tests/data/budgets/unread.yml",
)
FORMATS = {
    "json": ".json",
    "junit": ".xml",
    "github": ".github",
    "sarif": ".sarif",
    "md": ".md",
    "text": ".txt",
}
BROKEN = ["min_requests", "min_requests", "min_tokens", "max_kv_gib", "min_headroom_gib", "max_row_width",
          "max_req_to_token_mib"]  # fmt: skip


@pytest.fixture
def check(kvplan, monkeypatch):
    """The report of the recorded files in a format."""
    monkeypatch.chdir(REPOSITORY)

    def run(form: str, *more: str) -> str:
        code: int
        out: str
        code, out, _ = kvplan("check", *FILES, *more, "--format", form)
        assert code == 2
        return out

    return run


@pytest.mark.parametrize("form", FORMATS)
def test_the_bytes_are_the_recorded_ones(check, form):
    recorded = REPOSITORY / f"tests/data/budgets/expected/check{FORMATS[form]}"

    assert check(form) == recorded.read_text("utf-8")
    assert check(form) == check(form)


def test_junit_is_read_by_its_grammar(check):
    root = read_junit(check("junit"))

    failures = [
        case.attrib["name"] for case in root.iter("testcase") if case.find("failure") is not None
    ]
    assert failures == BROKEN
    assert [
        case.attrib["classname"] for case in root.iter("testcase") if case.find("error") is not None
    ] == ["tests/data/budgets/unread.yml"]


def test_sarif_is_valid_and_points_at_the_lines(check):
    schema = json.loads((REPOSITORY / "tests/data/schemas/sarif-2.1.0-subset.json").read_text())
    log = json.loads(check("sarif"))
    jsonschema.Draft202012Validator(schema).validate(log)

    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert [result["ruleId"] for result in run["results"]] == [*BROKEN, "input"]
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in run["results"])
    prints = [result["partialFingerprints"]["budget/v1"] for result in run["results"]]
    assert len(set(prints)) == len(prints)
    lines = (REPOSITORY / FILES[0]).read_text().splitlines()
    for result in run["results"][2:-1]:
        region = result["locations"][0]["physicalLocation"]["region"]
        value = lines[region["startLine"] - 1][: region["startColumn"] - 1]
        assert value == f"  {result['ruleId']}: "
    assert run["invocations"] == [{"executionSuccessful": False}]


def test_github_annotations_are_read_by_their_grammar(check):
    annotations = read_github(check("github"))

    assert [each.level for each in annotations] == ["error"] * 8 + ["warning", "notice"]
    first, last = annotations[0], annotations[-1]
    assert first.properties == {
        "file": "tests/data/budgets/broken.yaml",
        "line": "14",
        "col": "7",
        "title": "kvplan: min_requests",
    }
    assert first.message.splitlines()[1].startswith("hint: --mem-fraction-static ")
    assert last.message == "1 broken and 1 not readable of 5 budgets"


def test_markdown_has_a_row_a_budget(check):
    rows = [line for line in check("md").splitlines() if line.startswith("| ")]

    assert len(rows) == 2 + 5
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 4 for row in rows)


def test_names_and_messages_that_look_like_markup_stay_text(kvplan, tmp_path):
    folder = tmp_path / "a,b:c%0A"
    folder.mkdir()
    (folder / "<b>&'\"|`x`.yaml").write_text(
        "budgets:\n  '[red]*x*\\u2028]]>': {gpu: '::error::<i>'}\n"
    )
    outputs = {form: kvplan("check", folder, "--format", form)[1] for form in FORMATS}

    assert {each.properties.get("file", "") for each in read_github(outputs["github"])} >= {
        str(folder / "<b>&'\"|`x`.yaml")
    }
    assert read_junit(outputs["junit"])[0].attrib["name"].endswith(r"#[red]*x*\u2028]]>")
    assert json.loads(outputs["sarif"])["runs"][0]["results"][0]["message"]["text"].startswith(
        "no model"
    )
    assert r"\[red\]\*x\*" in outputs["md"]
    assert "[red]*x*" in outputs["text"]


def test_output_takes_its_form_from_the_suffix(check, tmp_path):
    names = {".json": "json", ".xml": "junit", ".sarif": "sarif", ".md": "md"}
    options = [part for suffix in names for part in ("--output", str(tmp_path / f"report{suffix}"))]

    out = check("github", *options)

    assert out == check("github")
    for suffix, form in names.items():
        assert (tmp_path / f"report{suffix}").read_text("utf-8") == check(form)


def test_an_unknown_form_is_refused(kvplan, tmp_path):
    code, _, err = kvplan("check", "presets/budgets", "--output", tmp_path / "report.pdf")

    assert code == 2
    assert "no form is written for 'report.pdf'" in err
    assert kvplan("check", "presets/budgets", "--format", "pdf")[0] == 2


def test_quiet_prints_the_verdict_alone(kvplan):
    path = REPOSITORY / FILES[1]

    assert kvplan("check", path, "-q") == (0, "2 budgets held\n", "")
