"""Applying transactions: from a request of the validator to its answer."""
