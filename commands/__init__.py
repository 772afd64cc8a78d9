"""The commands: read arguments, call the core, render."""
