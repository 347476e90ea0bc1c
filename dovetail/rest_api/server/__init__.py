"""The HTTP server: client connections, middleware, and dispatch by the table of routes."""
