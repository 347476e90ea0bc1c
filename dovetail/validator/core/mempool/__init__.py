"""The pending queue: accepted batches until they are committed or invalid. Pure."""
