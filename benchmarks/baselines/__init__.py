"""Straightforward forms of the same operations, to measure kvplan's against."""
