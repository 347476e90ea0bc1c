"""The version of the installed distribution. Neither protocols nor blocks contain it."""

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """The version, or "not installed" if the sources run without an installation."""
    try:
        return version("dovetail-ledger")
    except PackageNotFoundError:
        return "not installed"
