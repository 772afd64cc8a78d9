"""One pool operation a file: torch reference, launcher, Triton kernel."""
