"""Verification of a chain as it is stored: every byte that can be derived again is, and is compared.

The validator's rules come from their own homes (``dovetail.ledger.batch``, ``dovetail.validator.core.journal.rules``,
``dovetail.validator.core.state``);
here they are only driven. Reads a ``StoreReader`` and writes nothing.
"""
