"""Shipped presets: models, GPUs, parallel and speculative settings."""
