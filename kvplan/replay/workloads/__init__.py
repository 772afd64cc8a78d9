"""Trace readers, one format a file."""
