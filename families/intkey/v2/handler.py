"""The rules of intkey 2.0: those of 1.0 with wider values. Payloads are in ``payload``."""

from families.intkey import handler as v1
from families.intkey.v2.payload import ENCODINGS, FAMILY_VERSION


class IntkeyHandler(v1.IntkeyHandler):
    """set, inc and dec within 0 to 2^64-1, on the names of 1.0."""

    family_version = FAMILY_VERSION
    encodings = ENCODINGS
