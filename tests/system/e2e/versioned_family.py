"""The script family in two versions, each also as the 1.x line spoke to it: for processors that are replaced."""

from typing import Self

from processor_sdk.worker import registration
from tests.system.e2e.script_family import ScriptHandler

FAMILY = "e2e_versioned"


class First(ScriptHandler):
    """Version 1.0."""

    family_name = FAMILY


class Second(ScriptHandler):
    """Version 2.0."""

    family_name = FAMILY
    family_version = "2.0"


class _Conversing:
    """Where one is made, all that this interpreter registers is offered to the 1.x conversation alone."""

    def __new__(cls) -> Self:
        registration.PACKED_VERSION = 0  # type: ignore[misc]
        return super().__new__(cls)


class ConversingFirst(_Conversing, First):
    """Version 1.0, by the 1.x conversation."""


class ConversingSecond(_Conversing, Second):
    """Version 2.0, by the 1.x conversation."""
