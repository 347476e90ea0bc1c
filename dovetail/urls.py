"""Where a REST API is unless told otherwise, and how its URL is shown. Nothing is asked here."""

import re
from typing import Final

DEFAULT_URL: Final = "http://127.0.0.1:8080"

# NAME: with anything but a port behind it begins a password, which a mistaken URL may end anywhere before its last @.
_password = re.compile(r"\A((?:[^:/]*://)?[^/:@?#\[]*:)(?!//|\d*(?:[/?#]|$)).*@", re.DOTALL)


def shown_url(url: str) -> str:
    """``url``, or whatever stands in its place, without the password that it may hold."""
    return _password.sub(r"\1…@", url)


def misread(url: str) -> str:
    """What is said of an answer from ``url``, which may be shown, that has another shape than it should."""
    return f"{url} answered, but not as Dovetail's REST API does"
