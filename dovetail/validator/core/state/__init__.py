"""State: address to bytes at a root. Pure; nodes are read through a function that the store gives."""
