"""Mutated launch files and logs are read or refused, never with a traceback and never slowly."""

from __future__ import annotations

import contextlib
import random
import textwrap
import time

import pytest

from kvplan.errors import KvplanError
from kvplan.guard.launch import parse_launch, read_launches
from kvplan.guard.server_log import parse_log
from tests.guard.samples import COMPOSE, CONFIG, DOCKERFILES, MANIFEST, SCRIPT, TWO_RANKS

MUTATIONS = 1500
LINE = "python3 -m sglang.launch_server --model-path m --tp 8 --mem-fraction-static 0.8 --context-length 128k"
FILES = {
    "run.sh": SCRIPT,
    "Dockerfile": DOCKERFILES["shell form"],
    "exec.dockerfile": DOCKERFILES["exec form"],
    "compose.yaml": COMPOSE,
    "deploy.yaml": MANIFEST,
    "server.yaml": CONFIG,
}
TOKENS = [
    *"\"'`\\$(){}[]<>|&;#*!:,-=@%~ \t\n\r\0\x1b\ud800é\u2028",
    "$(", "${", "${A:-", "$((", "<<EOF\n", "<<-", "&a ", "*a", "<<: ", "---\n", "? ", "!!int ", "{{", "\\\n",
    "1e9", "yes", "012", ".nan", "9" * 400, "-1", "--", "--tp", "--tp=", "=", "A=", "A+=(", "export ", "for x in ",
    "FROM x\n", "CMD [", "ENTRYPOINT ", "ENV A=", "sglang serve ", "-m sglang.launch_server ", "server_args={'a': [",
    "[2025-01-01 00:00:00 TP0] ", "KV Cache is allocated. ", "SWAKVPool mem usage: 1 GB", "mem usage=-.5 GB", "\x1b[31m",
]  # fmt: skip


def mutated(text: str, chance: random.Random) -> str:
    """The text with one to six random edits."""
    for _ in range(chance.randint(1, 6)):
        at, end = sorted(chance.randint(0, len(text)) for _ in range(2))
        end = min(end, at + chance.choice([0, 1, 5, 40]))
        inserted = chance.choice(TOKENS) * chance.choice([1, 1, 1, 2, 60])
        edit = chance.randrange(4)
        if edit == 0:
            text = text[:at] + text[end:]
        elif edit == 1:
            text = text[:at] + inserted + text[end:]
        elif edit == 2:
            text = text[:at] + text[at:end] * chance.choice([2, 9]) + text[end:]
        else:
            lines = text.splitlines(keepends=True)
            chance.shuffle(lines)
            text = "".join(lines[: chance.randint(1, 60)])
    return text[:200_000]


def settled(read, *arguments) -> float:
    """Seconds of a core that reading took; anything but a value or a refusal escapes."""
    started = time.process_time()
    with contextlib.suppress(KvplanError):
        read(*arguments)
    return time.process_time() - started


@pytest.mark.parametrize("name", FILES)
def test_mutated_launch_files(tmp_path, name):
    chance = random.Random(name)
    sample = textwrap.dedent(FILES[name]).lstrip("\n")
    path = tmp_path / name
    slowest = 0.0

    for _ in range(MUTATIONS):
        path.write_bytes(mutated(sample, chance).encode("utf-8", "surrogatepass"))
        slowest = max(slowest, settled(read_launches, path))

    assert slowest < 1


def test_mutated_launches_end_in_a_plan_or_a_refusal(kvplan, tmp_path):
    chance, codes = random.Random(3), set()
    samples = {name: textwrap.dedent(text).lstrip("\n") for name, text in FILES.items()}
    for number in range(MUTATIONS // 2):
        name = chance.choice(list(samples))
        if number % 3:
            (tmp_path / name).write_bytes(
                mutated(samples[name], chance).encode("utf-8", "surrogatepass")
            )
            given = ["--launch-file", tmp_path / name]
        else:
            line = mutated(LINE.replace(" m ", " Qwen/Qwen3-8B "), chance)
            given = ["--launch", line.replace("\ud800", "?")]  # no command line carries one
        model = chance.choice([[], ["llama-3.1-8b"], ["llama-3.1-70b"]])
        started = time.process_time()
        code, out, err = kvplan("size", *model, *given, "--gpu", "h100")

        assert time.process_time() - started < 1
        assert code in {0, 1, 2}, given
        assert out if code < 2 else err.startswith("error:"), given
        codes.add(code)
    assert codes == {0, 1, 2}


def test_mutated_command_lines():
    chance = random.Random(1)

    assert max(settled(parse_launch, mutated(LINE, chance)) for _ in range(MUTATIONS)) < 1


def test_mutated_logs():
    chance = random.Random(2)

    assert max(settled(parse_log, mutated(TWO_RANKS, chance), "log") for _ in range(MUTATIONS)) < 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.sh", "$(" * 100_000),
        ("b.sh", "${a:-" * 100_000 + "}" * 100_000),
        ("c.sh", "A=" + "$A" * 200_000 + "\n" + "sglang serve $A"),
        ("d.sh", "sglang serve m " + "--x " * 200_000),
        ("e.sh", "sglang serve m " + "".join(f"--x{n} " for n in range(60_000))),
        ("f.sh", "\f" * 500_000),
        ("g.sh", "cat <<E\n" * 100_000),
        ("h.sh", "bash -c '" + "sglang serve m; " * 50_000 + "'"),
        ("i.sh", "export " + "-x " * 300_000),
        ("j.sh", "A=(" + "x " * 300_000),
        ("k.sh", '"' + "$(x)" * 100_000 + '"'),
        ("Dockerfile", "CMD x \\\n" * 100_000),
        ("l.yaml", "a: " + "{b: " * 50_000),
        ("m.yaml", "args: [" + "'sglang serve m', " * 5000 + "]"),
        ("n.yaml", "services:\n" + "".join(f"  s{n}: {{command: sglang serve m}}\n" for n in range(2000))),
        ("o.yaml", "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))),
    ],
)  # fmt: skip
def test_files_made_to_be_slow(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)

    assert settled(read_launches, path) < 3


@pytest.mark.parametrize(
    "content",
    [
        "Capture " * 30_000 + "graph end.",
        "Capture a graph end. mem usage=" * 8000,
        "KV Cache is allocated. " * 10_000,
        "Full " * 50_000 + "KV Cache is allocated",
        "[2025-01-01 00:00:00 TP0] Memory pool end" * 6000,
        "SWAKVPool mem usage: 1 GB, swa size: 1, full size: 1\n" * 20_000,
        "server_args={" + "'a': [" * 20_000,
        "server_args=ServerArgs(model_path='" + "(" * 200_000,
        "server_args=ServerArgs(model_path=" + "-" * 3000 + "1)",
        "max_total_num_tokens=" + "9" * 200_000,
        "\x1b[" * 100_000 + "Memory pool end",
    ],
    ids=range(11),
)
def test_logs_made_to_be_slow(content):
    assert settled(parse_log, content, "log") < 3
