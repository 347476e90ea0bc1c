"""Accepts submitted batches: worker processes verify their signatures, then they are stored and queued."""
