"""The connection to the validator, and the keys for it."""
