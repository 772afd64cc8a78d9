#!/bin/bash
exec python -m sglang.launch_server \
  --model-path meta-llama/Llama-3.1-8B-Instruct \
  --tp 2 --page-size 16 --mem-fraction-static 0.85 --max-running-requests 128 \
  --lora-paths adapters/summary
