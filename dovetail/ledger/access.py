"""The access rules for reads, lists and writes of a transaction, with the messages of their refusals."""

from dovetail.ledger.addresses import AccessList, is_address, is_prefix
from dovetail.ledger.errors import some_of


def write_refusal(address: str, outputs: AccessList, namespaces: tuple[str, ...]) -> str | None:
    """Why a transaction may not write at ``address``; None if it may."""
    if not is_address(address):
        return f"it wrote at {address[:80]!r}, which is no address of 70 lower-case hex characters"
    if not outputs.permits(address):
        return f"it wrote at {address}, outside its outputs {_shortened(outputs.declared)}"
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
