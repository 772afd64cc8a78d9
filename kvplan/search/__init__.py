"""The inverse of sizing: fit one knob, sweep a grid."""
