"""The HTTP client of a node's REST API."""
