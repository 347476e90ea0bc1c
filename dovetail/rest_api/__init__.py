"""The HTTP door: routes, JSON views, errors, proxy headers and the connection to the validator.

Holds no state of its own, so any number of them may stand in front of one validator. Meets it on the wire only.
"""
