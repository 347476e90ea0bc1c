"""The connection to the validator."""
