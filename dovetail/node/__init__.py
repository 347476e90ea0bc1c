"""What runs the processes of one node: configuration, genesis, supervision."""
