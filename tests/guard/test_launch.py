"""Launch lines and files: the arguments that SGLang would read, with the place of each, nothing run."""

from __future__ import annotations

import json
import textwrap

import pytest

from kvplan.errors import InputError
from kvplan.guard.launch import parse_launch, read_launch, read_launches
from tests.guard.samples import COMPOSE, CONFIG, DOCKERFILES, MANIFEST, SCRIPT

BASE = "python3 -m sglang.launch_server --model-path m "


@pytest.fixture
def write(tmp_path):
    def written(name: str, text: str):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        return path

    return written


@pytest.mark.parametrize(
    ("flags", "args"),
    [
        ("--tp 8", {"tp_size": 8}),
        ("--tp-size=8", {"tp_size": 8}),
        ("--tensor-parallel-size 8", {"tp_size": 8}),
        ("--dp 2 --ep 4 --pp-size 2", {"dp_size": 2, "ep_size": 4, "pp_size": 2}),
        ("--mem-fraction-static 0.85", {"mem_fraction_static": 0.85}),
        ("--mem-frac .9", {"mem_fraction_static": 0.9}),
        ("--chunked-prefill-size -1", {"chunked_prefill_size": -1}),
        ("--context-length 128k", {"context_length": 128_000}),
        ("--context-length 4Ki", {"context_length": 4096}),
        ("--max-total-tokens 25.6k", {"max_total_tokens": 25_600}),
        ("--kv-cache-dtype fp8_e4m3", {"kv_cache_dtype": "fp8_e4m3"}),
        ("--disable-radix-cache --page-size 64", {"disable_radix_cache": True, "page_size": 64}),
        ("--cuda-graph-bs-decode 1 2 4", {"cuda_graph_bs_decode": [1, 2, 4]}),
        ("--enable-hicache --hicache-size 16", {"enable_hierarchical_cache": True, "hicache_size": 16}),
        ("--speculative-draft-model d", {"speculative_draft_model_path": "d"}),
        ("--cuda-graph-config '{\"decode\": {\"max_bs\": 8}}'", {"cuda_graph_config": {"decode": {"max_bs": 8}}}),
        ("--page-size 16 --page-size 32", {"page_size": 32}),
        ("--page-size '64'", {"page_size": 64}),
    ],
)  # fmt: skip
def test_flags_are_read_as_the_engine_reads_them(flags, args):
    assert parse_launch(BASE + flags).args == args


@pytest.mark.parametrize(
    ("flags", "args", "remark"),
    [
        ("--cuda-graph-max-bs 64", {"cuda_graph_max_bs_decode": 64}, "is '--cuda-graph-max-bs-decode'"),
        ("--nsa-decode-backend fa3", {"dsa_decode_backend": "fa3"}, "is '--dsa-decode-backend'"),
        ("--enable-deepep-moe", {"moe_a2a_backend": "deepep"}, "is '--moe-a2a-backend'"),
        ("--disable-piecewise-cuda-graph", {"disable_prefill_cuda_graph": True}, "is '--disable-prefill-cuda-graph'"),
        ("--mamba-scheduler-strategy no_buffer", {"mamba_radix_cache_strategy": "no_buffer"}, "is '--mamba-radix"),
        ("--kv-cache-dtype fp4_e2m1", {"kv_cache_dtype": "fp4_mx_block16"}, "is 'fp4_mx_block16'"),
        ("--disable-mla", {}, "is gone"),
        ("--torchao-config int4wo-128", {}, "is gone"),
        ("--page-size 16 --page-size 32", {"page_size": 32}, "given twice: 32 counts"),
        ("--tp 4 extra", {"tp_size": 4}, "'extra' belongs to no flag"),
        ("--tp $NGPU", {}, "the value of '--tp-size' is known only when it runs: '$NGPU'"),
        ("--tp 4 $EXTRA", {"tp_size": 4}, "flags in '$EXTRA' are known only when it runs"),
        ("--tp ${TP:-4}", {"tp_size": 4}, "'$TP' is not set here: taken as '4'"),
    ],
)  # fmt: skip
def test_what_is_not_as_it_seems_is_remarked(flags, args, remark):
    launch = parse_launch(BASE + flags)

    assert launch.args == args
    assert any(remark in each.text for each in launch.warnings)


@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("--mem-fraction-statik 0.8", "did you mean '--mem-fraction-static'?"),
        ("--tensor-parallel 3", None),
        ("--tpp 8", "did you mean '--tp'?"),
        ("--pp 2", "it could be any of: --pp-async-batch-depth"),
        ("--max-runing-requests 5", "did you mean '--max-running-requests'?"),
    ],
)
def test_an_unknown_flag_is_left_out_with_the_nearest_name(flag, hint):
    launch = parse_launch(BASE + flag + " --page-size 64")
    remarks = [each for each in launch.warnings if "no such flag" in each.text]

    assert launch.args["page_size"] == 64
    if hint is None:
        assert not remarks
    else:
        assert remarks[0].where == "--launch:1:48"
        assert str(remarks[0].hint).startswith(hint)
        assert remarks[0].sentence.endswith(f"is left out; {remarks[0].hint}")


@pytest.mark.parametrize(
    ("flags", "column", "problem", "hint"),
    [
        ("--tp eight", 53, "'--tp-size' must be an integer, got 'eight'", None),
        ("--tp", 48, "'--tp' needs a value", None),
        ("--tp --page-size 1", 48, "'--tp' needs a value", None),
        ("--mem-fraction-static nan", 70, "must be a number, got 'nan'", None),
        ("--max-total-tokens 1.5Ki", 67, "must be an integer, or one like", None),
        ("--kv-cache-dtype fp8", 65, "unknown value 'fp8'", "one of: fp8_e4m3, fp8_e5m2"),
        ("--disaggregation-mode prefil", 70, "unknown value 'prefil'", "did you mean 'prefill'?"),
        ("--disable-radix-cache=1", 48, "takes no value", None),
        ("--cuda-graph-config {a}", 68, "value of '--cuda-graph-config' is not JSON", None),
        ("--page-size 'x", 60, "the quote is never closed", None),
        ("--page-size $(cat x", 61, "'(' is never closed", None),
    ],
)
def test_a_value_that_the_engine_would_refuse_is_refused(flags, column, problem, hint):
    with pytest.raises(InputError) as caught:
        parse_launch(BASE + flags)

    assert caught.value.where == f"--launch:1:{column}"
    assert problem in caught.value.problem
    assert hint is None or hint in str(caught.value.hint)


def test_flags_without_a_say_are_listed_apart():
    launch = parse_launch(
        BASE + "--host 0.0.0.0 --port 1 --enable-metrics --schedule-policy lpm --cpu-offload-gb 4"
    )

    assert launch.ignored == ("host", "port", "enable_metrics")
    assert launch.scheduling == {"schedule_policy": "lpm"}
    assert launch.unmodelled == {"cpu_offload_gb": 4}
    assert not launch.warnings


@pytest.mark.parametrize(
    "command",
    [
        "sglang serve m --tp 2",
        "sglang serve --model-path m --tp 2",
        "/usr/local/bin/sglang serve --model m --tp=2",
        "exec python -m sglang.launch_server --model m --tp 2",
        "CUDA_VISIBLE_DEVICES=0,1 nohup python3.12 -u -m sglang.launch_server --model m --tp 2 > log 2>&1 &",
        "numactl --membind 0 python3 /opt/sglang/launch_server.py --model m --tp 2",
        "docker run --gpus all -p 1:1 lmsysorg/sglang:latest python3 -m sglang.launch_server --model m --tp 2",
        "bash -c 'cd /x && python3 -m sglang.launch_server --model m --tp 2'",
        "ssh node1 \"bash -lc 'sglang serve m --tp 2'\"",
        "--model m --tp 2",
        "T=2; python -m sglang.launch_server --model m --tp $T",
    ],
)
def test_a_launch_is_found_whatever_wraps_it(command):
    launch = parse_launch(command)

    assert (launch.model_path, launch.args) == ("m", {"tp_size": 2})


def test_a_shell_script_with_variables_arrays_and_comments(write):
    path = write("run.sh", SCRIPT)

    launch = read_launch(path)

    assert launch.model_path == "meta-llama/Llama-3.1-8B"
    assert launch.args == {
        "tp_size": 8,
        "page_size": 64,
        "kv_cache_dtype": "fp8_e4m3",
        "max_running_requests": 256,
        "disable_radix_cache": True,
        "context_length": 131_072,
    }
    assert launch.unresolved == {"mem_fraction_static": "$(cat fraction)", "port": "`next_port`"}
    assert launch.places["tp_size"] == f"{path}:15:25"
    assert [each.text for each in launch.warnings] == [
        "'$CTX' is set under a condition: taken as '131072'",
        "the value of '--mem-fraction-static' is known only when it runs: '$(cat fraction)'",
        "the value of '--port' is known only when it runs: '`next_port`'",
        "flags in '$@' are known only when it runs",
    ]


def test_a_broken_continuation_is_remarked(write):
    path = write("run.sh", "sglang serve m \\ \n  --tp 8\n")

    launch = read_launch(path)

    assert launch.args == {}
    assert "a backslash before a blank" in launch.warnings[0].text


def test_a_loop_variable_and_a_here_document(write):
    path = write(
        "run.sh",
        """
        MODEL=m
        cat > node.sh <<-EOF
        sglang serve $MODEL --tp 4
        EOF
        for DP in 1 2; do
          sglang serve $MODEL --tp 4 --dp $DP
        done
        """,
    )

    inner, loop = read_launches(path)

    assert (inner.model_path, inner.args, inner.name) == ("m", {"tp_size": 4}, "line 3")
    assert loop.unresolved == {"dp_size": "$DP"}


def test_variables_that_double_themselves_are_refused(write):
    doubling = "A=xxxxxxxxxxxxxxxx\n" + 'A="$A$A"\n' * 40 + "sglang serve $A\n"

    with pytest.raises(InputError, match="expand to too much text"):
        read_launches(write("run.sh", doubling))


def test_several_launches_need_a_choice_unless_they_are_alike(write):
    different = write("a.sh", "sglang serve m --tp 2\nsglang serve m --tp 4\n")
    ranks = write(
        "b.sh", "sglang serve m --tp 2 --node-rank 0 &\nsglang serve m --tp 2 --node-rank 1\n"
    )

    assert read_launch(different, "line 2").args == {"tp_size": 4}
    assert read_launch(ranks).args == {"tp_size": 2}
    with pytest.raises(InputError) as caught:
        read_launch(different)
    assert caught.value.hint == "choose: line 1, line 2"
    with pytest.raises(InputError, match="no launch is named 'line 3'"):
        read_launch(different, "line 3")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("echo hello\n", "no SGLang server is launched here"),
        ("", "no SGLang server is launched here"),
        ("sglang serve --tp 2\n", "the launch names no model"),
    ],
)
def test_a_script_without_a_launch_or_model_is_refused(write, text, problem):
    with pytest.raises(InputError, match=problem):
        read_launch(write("run.sh", text))


@pytest.mark.parametrize("text", DOCKERFILES.values(), ids=DOCKERFILES.keys())
def test_a_dockerfile(write, text):
    launch = read_launch(write("Dockerfile", text))

    assert (launch.model_path, launch.args) == ("m", {"tp_size": 2})


def test_a_compose_file(write):
    small, script = read_launches(write("compose.yaml", COMPOSE))

    assert (small.name, small.model_path, small.args) == ("small", "m", {"tp_size": 2})
    assert small.unresolved == {"context_length": "${CONTEXT}"}
    assert "'$TP' is not set here: taken as '2'" in [each.text for each in small.warnings]
    assert (script.name, script.args) == ("script", {"tp_size": 4, "mem_fraction_static": 0.8})


def test_kubernetes_manifests(write):
    path = write("deploy.yaml", MANIFEST)

    server, flags, shell = read_launches(path)

    assert (server.name, server.model_path) == ("llama/server", "org/model")
    assert server.args == {"tp_size": 8, "page_size": 64}
    assert server.unresolved == {"port": "$(PORT)"}
    assert server.places["tp_size"] == f"{path}:18:15"
    assert (flags.name, flags.args) == ("llama/flags", {"tp_size": 2})
    assert (shell.model_path, shell.args) == ("other", {"tp_size": 4})


def test_a_template_that_is_no_yaml_yet_says_so(write):
    path = write("deploy.yaml", "{{- if .Values.x }}\nkind: Pod\nargs: [{{ .Values.args }}]\n")

    with pytest.raises(InputError) as caught:
        read_launches(path)

    assert caught.value.hint == "render the template first"


def test_a_server_config_by_itself_and_behind_a_command_line(write):
    path = write("server.yaml", CONFIG)
    script = write("run.sh", "sglang serve --config server.yaml --tp 4\n")
    args = {
        "tp_size": 2,
        "mem_fraction_static": 0.8,
        "disable_radix_cache": True,
        "cuda_graph_bs_decode": [1, 2],
    }

    assert read_launch(path).args == args
    assert read_launch(path).beside == {"json_model_override_args": '{"a":1}'}
    assert read_launch(path).places["tp_size"] == f"{path}:2:1"
    assert read_launch(script).args == {**args, "tp_size": 4}
    assert read_launch(script).model_path == "m"


def test_a_config_file_that_is_not_here_is_remarked(write):
    launch = read_launch(write("run.sh", "sglang serve m --config /etc/none.yaml --tp 4\n"))

    assert launch.args == {"tp_size": 4}
    assert "the config file '/etc/none.yaml' is not here" in launch.warnings[0].text


def test_a_server_config_is_read_strictly(write):
    path = write("server.yaml", "model-path: m\ndisable-radix-cache: yes\n")

    with pytest.raises(InputError) as caught:
        read_launch(path)

    assert caught.value.where == f"{path}:2:22"


SPELLINGS = {"tp": "--tp", "dp": "--dp", "pp": "--pp-size", "ep": "--ep", "mamba_ratio": "--mamba-full-memory-ratio"}  # fmt: skip


def plain(value) -> bool:
    """Whether a published argument is a value, not a remark about one."""
    return value is True or isinstance(value, int | float) or (
        isinstance(value, str) and value != "default" and " " not in value and value != "fp8"
    )  # fmt: skip


def command_line(record: dict) -> tuple[str, dict]:
    words, given = ["python3 -m sglang.launch_server --model-path", f"'{record['model']}'"], {}
    for name, value in record["launch_args"].items():
        if name in {"note", "mem_fraction_static_source", "layersplit"} or not plain(value):
            continue
        if value is False:
            continue
        words.append(SPELLINGS.get(name, "--" + name.replace("_", "-")))
        if value is not True:
            words.append(str(value))
        given[name] = value
    return " ".join(words), given


def test_the_arguments_of_every_published_log_go_through(shared):
    lines = (shared / "facts" / "logs.jsonl").read_text().splitlines()
    records = [record for record in map(json.loads, lines) if record["engine"] == "sglang"]
    assert len(records) >= 70

    for record in records:
        line, given = command_line(record)
        launch = parse_launch(line)
        read = {
            **launch.args,
            **launch.scheduling,
            **launch.unmodelled,
            **launch.beside,
            **launch.unresolved,
        }

        assert launch.model_path == record["model"]
        assert not [each for each in launch.warnings if "no such flag" in each.text], record["id"]
        assert len(read) + len(launch.ignored) == len(given), record["id"]
        for name, value in given.items():
            field = {"tp": "tp_size", "dp": "dp_size", "pp": "pp_size", "ep": "ep_size"}.get(
                name, name
            )
            assert read.get(field, value) == value, (record["id"], name)
