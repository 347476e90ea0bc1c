"""One HTTP request: its parameters, its links, its refusals."""
