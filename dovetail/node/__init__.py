"""The processes of one node: configuration, genesis, supervision, logs."""
