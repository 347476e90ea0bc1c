"""Verifies stored history, and runs it again."""
