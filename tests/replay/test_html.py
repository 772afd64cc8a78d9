"""The HTML report: one page, nothing fetched, drawn by a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from kvplan.report.replay_html import html_text

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
LAUNCH = ("trace", "gpt-oss-20b", "--gpu", "h100", "--max-total-tokens", "60000")


@pytest.fixture
def page(kvplan, tmp_path):
    file = tmp_path / "report.html"
    code, _, err = kvplan(*LAUNCH, "--workload", "documents", "-q", "--output", file)
    assert code == 0, err
    return file


def test_the_page_fetches_nothing(page):
    text = page.read_text()

    assert not re.search(r"(src|href)\s*=\s*[\"']?https?:", text)
    assert "@import" not in text
    assert "fetch(" not in text
    assert "default-src 'none'" in text


def test_the_data_cannot_end_the_script_that_holds_it():
    text = html_text({"model": "</script><script>alert(1)</script>", "html": "<!--"})

    held = re.search(r'id="report">(.*?)</script>', text, re.DOTALL)
    assert held is not None
    assert json.loads(held[1])["model"] == "</script><script>alert(1)</script>"
    assert "<" not in held[1]


def dom(page, folder):
    """The page as a browser leaves it once its script has run."""
    return subprocess.run(
        [
            str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
            "--no-first-run", "--disable-background-networking", "--disable-component-update",
            "--disable-sync", f"--user-data-dir={folder / 'profile'}", "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip


in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium on the PATH")


@in_a_browser
def test_a_browser_draws_the_charts(page, tmp_path):
    dumped = dom(page, tmp_path)

    assert re.search(r'<h1 id="verdict" class="good">fits, peak \d+% of 60,000 tokens', dumped)
    drawn = dict(re.findall(r'<path d="([^"]+)" data-series="(\w+)"', dumped))
    assert set(drawn.values()) == {"used", "cached", "sliding", "running", "waiting"}
    assert all(len(path) > 500 and "NaN" not in path for path in drawn)
    assert dumped.count("<td>full KV</td>") == 1
    assert "<td>200 read, 200 kept</td>" in dumped


ODD = {
    "one request": "arrivals: {process: at_once}\nrequests: 1\ninput: 5\noutput: 5\n",
    "all rejected": "arrivals: {process: at_once}\nrequests: 3\ninput: 90000\noutput: 5\n",
    "operations": "kvplan: events\nversion: 1\noperations:\n- {op: alloc, requests: [a]}\n",
}


@in_a_browser
@pytest.mark.parametrize("name", ODD)
def test_a_browser_draws_odd_replays_to_the_end(kvplan, tmp_path, name):
    workload, file = tmp_path / "odd.yaml", tmp_path / "report.html"
    workload.write_text(ODD[name])
    kvplan(*LAUNCH, "--workload", workload, "--kv-scale", "-q", "--output", file)
    dumped = dom(file, tmp_path)

    assert "<td>read as</td>" in dumped
    assert "<li>" in dumped  # what the script writes last
    assert not re.search(r"NaN|undefined|Infinity", dumped.partition('id="report"')[0])
    assert ('<div id="over-time" hidden="">' in dumped) == (name == "operations")
    assert ("without --max-total-tokens → " in dumped) == (name == "all rejected")
