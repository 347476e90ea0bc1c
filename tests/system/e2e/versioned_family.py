"""The script family in two versions, each also for the 1.x conversation. For tests that replace processors."""

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
    """Making an instance limits all registrations of this interpreter to the 1.x conversation."""

    def __new__(cls) -> Self:
        registration.PACKED_VERSION = 0  # type: ignore[misc]
        return super().__new__(cls)


class ConversingFirst(_Conversing, First):
    """Version 1.0, by the 1.x conversation."""


class ConversingSecond(_Conversing, Second):
    """Version 2.0, by the 1.x conversation."""
