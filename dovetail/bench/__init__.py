"""The benchmark of a node: a signed load, the machine's own ceiling, sending it over HTTP, and the figures.

What to type lives in ``dovetail.cli.commands.bench``. Nothing here is imported by the node; the processors of a load
import ``dovetail.bench.families``.
"""
