"""From the arguments of a launch to what the engine makes of them, one group of rules a module."""
