"""Launch files of each kind, and the output of a start, for the tests."""

from __future__ import annotations

SCRIPT = r"""
    #!/bin/bash
    # serves the model
    MODEL="meta-llama/Llama-3.1-8B"
    TP=8            # gpus
    ARGS=(
      --page-size 64  # pages
      --kv-cache-dtype "fp8_e4m3"
    )
    ARGS+=(--enable-metrics)
    MORE="--max-running-requests 256 --disable-radix-cache"
    if [ -n "$LONG" ]; then CTX=131072; fi
    export NOTHING=

    python3 -m sglang.launch_server \
      --model-path "$MODEL" --tp ${TP} "${ARGS[@]}" $MORE $NOTHING \
      --context-length $CTX \
      --mem-fraction-static "$(cat fraction)" --host '$HOME' --port `next_port` \
      "$@" &> server.log
    """

DOCKERFILES = {
    "exec form": r"""
        FROM lmsysorg/sglang:v0.5.23
        ENTRYPOINT ["python3", "-m", "sglang.launch_server"]
        # the arguments
        CMD ["--model-path", "m", \
             "--tp", "2"]
        """,
    "shell form": r"""
        FROM base
        ARG TP=2
        ENV MODEL=m OTHER="a b"
        RUN <<EOF
        CMD ["not", "this"]
        EOF
        CMD python3 -m sglang.launch_server \
        # a comment inside
            --model-path $MODEL --tp ${TP}
        """,
    "stages": """
        FROM base AS server
        ENV MODEL m
        CMD sglang serve wrong
        FROM --platform=linux/amd64 server
        ENTRYPOINT ["/bin/sh", "-c", "exec sglang serve $MODEL --tp 2"]
        """,
}

COMPOSE = """
    x-common: &common
      image: lmsysorg/sglang:latest
      environment:
        - FRACTION=0.8
    services:
      small:
        <<: *common
        entrypoint: python3 -m sglang.launch_server
        command: >
          --model-path m
          --tp ${TP:-2}
          --context-length ${CONTEXT}
      script:
        <<: *common
        command: ["bash", "-c", "sglang serve m --tp 4 --mem-fraction-static $$FRACTION"]
      router:
        command: python -m sglang_router.launch_router
    """

MANIFEST = """
    apiVersion: v1
    kind: Service
    metadata: {name: front}
    ---
    apiVersion: apps/v1
    kind: Deployment
    metadata:
      name: llama
    spec:
      template:
        spec:
          containers:
            - name: server
              command: [python3, -m, sglang.launch_server]
              args:
                - --model-path
                - $(MODEL)
                - --tp
                - 8
                - --port=$(PORT)
                - --page-size
                - "64"
              env:
                - {name: MODEL, value: org/model}
                - {name: PORT, valueFrom: {fieldRef: {fieldPath: x}}}
            - name: flags
              image: org/sglang
              args: ["--model-path", "m", "--tp", "2"]
            - name: shell
              command: ["/bin/sh", "-c"]
              args:
                - |
                  python3 -m sglang.launch_server \\
                    --model-path $MODEL \\
                    --tp 4
              env:
                - {name: MODEL, value: other}
    """

CONFIG = """
    model-path: m
    tensor-parallel-size: 2
    mem_fraction_static: 0.8
    disable-radix-cache: true
    enable-metrics: false
    cuda-graph-bs-decode: [1, 2]
    json-model-override-args: {a: 1}
    """

TWO_RANKS = """\
[2025-10-16 09:06:09 TP1] Init torch distributed ends. mem usage=2.01 GB
[2025-10-16 09:06:10 TP1] Load weight begin. avail mem=137.29 GB
[2025-10-16 09:06:10 TP0] Load weight begin. avail mem=137.34 GB
Loading safetensors checkpoint shards: 100% Completed | 30/30 [00:10<00:00,  2.9it/s]
[2025-10-16 09:06:21 TP0] Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=120.10 GB, mem usage=17.24 GB.
[2025-10-16 09:06:21 TP1] Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=120.05 GB, mem usage=17.24 GB.
[2025-10-16 09:06:21 TP0] Load weight begin. avail mem=120.10 GB
[2025-10-16 09:06:22 TP0] Load weight end. type=Eagle, dtype=torch.bfloat16, avail mem=118.00 GB, mem usage=2.10 GB.
[2025-10-16 09:06:23 TP0] KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 454112, K size: 3.46 GB, V size: 3.46 GB
[2025-10-16 09:06:23 TP0] Memory pool end. avail mem=8.40 GB
[2025-10-16 09:06:23 TP0] KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 454112, K size: 1.08 GB, V size: 1.08 GB
[2025-10-16 09:06:23 TP0] Memory pool end. avail mem=6.23 GB
[2025-10-16 09:06:24 TP0] Capture target verify CUDA graph end. bs=[1, 2, 4], elapsed=3.10 s, mem usage=0.58 GB, avail mem=5.65 GB.
[2025-10-16 09:06:25 TP0] Capture draft cuda graph end. Time elapsed: 1.40 s. mem usage=0.22 GB. avail mem=5.43 GB.
[2025-10-16 09:06:26 TP0] max_total_num_tokens=454112, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=48, context_len=40960, available_gpu_mem=5.43 GB
"""
