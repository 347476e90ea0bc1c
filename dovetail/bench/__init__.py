"""The benchmark of a node: what several measurements share is here, each measurement has a folder of its own.

The commands are in ``dovetail.cli.commands.bench``. The node imports nothing from here; only the processors of a load
import ``dovetail.bench.families``.
"""
