"""``bench load``: committed transactions a second under a load, and what each process costs."""
