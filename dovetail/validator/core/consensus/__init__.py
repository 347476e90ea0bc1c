"""Engines, which decide when to build a block and what to commit. Pure."""
