"""The benchmark of a node. Shared modules are here; each measurement has a folder of its own.

The commands are in ``dovetail.cli.commands.bench``. The node imports nothing from here; only the processors of a load
import ``dovetail.bench.families``.
"""
