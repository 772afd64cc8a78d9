"""Workloads, the scheduling model, and what a replay verifies."""
