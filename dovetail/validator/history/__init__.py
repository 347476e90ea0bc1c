"""Stored history: its verification, and its execution once more."""
