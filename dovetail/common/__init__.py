"""What the packages above share: refusals, files, keys, URLs, output. Nothing here knows a node."""
