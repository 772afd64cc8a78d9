"""Capacity planner and pool inspector for LLM serving."""
