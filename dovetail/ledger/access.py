"""The access rules for reads, lists and writes of a transaction, with the messages of their refusals.

Only the settings family may write in its namespace: its leaves say who may change the ledger's rules.
"""

from collections.abc import Iterable

from dovetail.ledger.addresses import AccessList, is_address, is_prefix
from dovetail.ledger.errors import some_of
from dovetail.ledger.settings import FAMILY_NAME, NAMESPACE


def namespace_refusal(family_name: str, namespaces: Iterable[str]) -> str | None:
    """Why a family may not declare ``namespaces``, which are prefixes of addresses; None if it may."""
    if family_name == FAMILY_NAME:
        return None
    for namespace in namespaces:
        if namespace.startswith(NAMESPACE) or NAMESPACE.startswith(namespace):
            return f"the namespace {namespace[:80]!r} overlaps {NAMESPACE}, in which only {FAMILY_NAME} writes"
    return None


def write_refusal(family_name: str, address: str, outputs: AccessList, namespaces: tuple[str, ...]) -> str | None:
    """Why a transaction of ``family_name`` may not write at ``address``; None if it may."""
    if not is_address(address):
        return f"it wrote at {address[:80]!r}, which is no address of 70 lower-case hex characters"
    if not outputs.permits(address):
        return f"it wrote at {address}, outside its outputs {_shortened(outputs.declared)}"
    if address.startswith(NAMESPACE) and family_name != FAMILY_NAME:
        return f"it wrote at {address}, and in {NAMESPACE} only {FAMILY_NAME} writes"
    if not address.startswith(namespaces):
        return f"it wrote at {address}, outside its processor's namespaces {_shortened(namespaces)}"
    return None


def read_refusal(address: str, inputs: AccessList) -> str | None:
    """Why a transaction may not read ``address``; None if it may."""
    if not is_address(address):
        return f"it read {address[:80]!r}, which is no address of 70 lower-case hex characters"
    if not inputs.permits(address):
        return f"it read {address}, outside its inputs {_shortened(inputs.declared)}"
    return None


def list_refusal(prefix: str, inputs: AccessList) -> str | None:
    """Why a transaction may not list the entries under ``prefix``; None if it may."""
    if not is_prefix(prefix):
        return f"it listed {prefix[:80]!r}, which is not an even number of lower-case hex characters, 0 to 70"
    if not inputs.permits_prefix(prefix):
        return f"it listed {prefix!r}, which no one of its inputs covers: {_shortened(inputs.declared)}"
    return None


def _shortened(entries: tuple[str, ...]) -> str:
    """At most three entries of a declaration, for a message."""
    return some_of(entries, 3) or "(none)"
