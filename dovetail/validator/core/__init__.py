"""The pure core of the validator: no sockets, clock, threads, disk or logging. It imports no other part of the
validator."""
