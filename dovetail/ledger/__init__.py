"""The domain, pure: ids, addresses, transactions, batches, blocks, receipts, signing, settings and the refusals.

Nothing here knows sockets, threads, clocks, randomness, the environment or logging: what is needed comes in as
arguments. ``key_files`` alone reads files, and asks who the reader is; ``hosts`` looks up a
name.
"""
