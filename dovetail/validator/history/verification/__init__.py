"""Verifies a stored chain: derives again every byte that can be derived, and compares the bytes.

Applies the rules of ``dovetail.ledger.batch``, ``dovetail.validator.core.journal.rules`` and
``dovetail.validator.core.state``, and has none of its own. Reads a ``StoreReader`` and writes nothing.
"""
