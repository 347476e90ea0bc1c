"""``bench steps``: the processor time of each step that a transaction passes, in one process."""
