"""Verification of a chain as it is stored: every byte that can be derived again is, and is compared.

The validator's rules come from their own homes (``ledger.batch``, ``validator.journal.rules``, ``validator.state``);
here they are only driven. Reads a ``StoreReader`` and writes nothing.
"""
