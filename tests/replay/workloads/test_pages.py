"""The pages on formats: one for each, and their examples are real."""

from __future__ import annotations

import re

import pytest

from kvplan.replay.workloads.formats import FORMATS
from tests.conftest import REPOSITORY
from tests.replay.workloads.helpers import opened

PAGES = REPOSITORY / "docs" / "formats"
DESCRIBED = re.findall(r"```yaml\n(.*?)```", (PAGES / "synthetic.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_its_page_and_its_row_in_the_overview(name):
    page = f"{name.replace('_', '-')}.md"

    assert (PAGES / page).read_text().startswith(f"# `{name}`: ")
    assert f"](formats/{page})" in (PAGES.parent / "workloads.md").read_text()


@pytest.mark.parametrize("text", DESCRIBED)
def test_every_described_workload_can_be_generated(tmp_path, text):
    (tmp_path / "made.yaml").write_text(text)

    assert len(opened(tmp_path / "made.yaml")) in (60, 2000)


def test_the_described_chat_service_is_the_example():
    assert DESCRIBED[0] == (REPOSITORY / "docs/examples/chat.yaml").read_text()
