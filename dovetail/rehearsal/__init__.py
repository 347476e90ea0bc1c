"""Rehearsal: a family's next handler on what the chain holds already. Reads a store, writes only its own progress.

No command line here (``dovetail.cli.commands.upgrade.rehearse``), and no validator: the store is all that is needed.
"""
