"""Replay memory that is real: torch allocators, request rows, KV buffers."""
