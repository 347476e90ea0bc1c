"""The parts that a user calls: the command line, the HTTP client, the supervisor of a node, the benchmark."""
