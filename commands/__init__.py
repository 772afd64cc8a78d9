"""The commands: read arguments, call the core, render."""

import gc

# start-up makes many objects and frees few: fewer collections save a tenth of it
gc.set_threshold(400_000)
