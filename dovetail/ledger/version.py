"""Which Dovetail this is. What may stand in a protocol or a block does not live here: neither names it."""

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """The version of the installed distribution; "not installed" where the sources run without one."""
    try:
        return version("dovetail-ledger")
    except PackageNotFoundError:
        return "not installed"
