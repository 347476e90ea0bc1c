"""The way of a submitted batch into the queue: its signatures are verified in worker processes, then it is stored."""
