"""The recorded state of the pools at one step: read, checked, and who holds what."""
