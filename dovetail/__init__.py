"""What a user types and imports: the command line, the HTTP client, the supervisor of a node, the benchmark."""
