"""The pools themselves, as torch tensors."""
