"""Committed transactions a second under a load, and what each process costs meanwhile."""
