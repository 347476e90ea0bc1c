"""The pure domain: ids, addresses, transactions, batches, blocks, receipts, signing, settings and refusals.

No sockets, threads, clocks, randomness, environment or logging. The exceptions: ``key_files`` reads files, ``hosts``
looks up host names.
"""
