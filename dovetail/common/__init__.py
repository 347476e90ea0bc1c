"""Modules that all packages share: refusals, files, keys, URLs, output. Nothing here depends on a node."""
