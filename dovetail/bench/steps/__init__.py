"""``bench steps``: what each step of a transaction's way costs, in one process."""
