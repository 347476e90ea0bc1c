"""Rehearsal: runs a family's next handler on the chain's past transactions. Reads a store, writes only its progress.

It needs no running validator. The command line is ``dovetail.cli.commands.upgrade.rehearse``.
"""
