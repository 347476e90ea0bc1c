"""The HTTP server: connections, dispatch, metrics."""
