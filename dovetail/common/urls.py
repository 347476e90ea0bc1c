"""Where a REST API is unless told otherwise, and how its URL is shown. Nothing is asked here."""

import re
from typing import Final

from dovetail.common.errors import Refused

DEFAULT_URL: Final = "http://127.0.0.1:8080"

# NAME: with anything but a port behind it begins a password, which a mistaken URL may end anywhere before its last @.
_password = re.compile(r"\A((?:[^:/]*://)?[^/:@?#\[]*:)(?!//|\d*(?:[/?#]|$)).*@", re.DOTALL)


def shown_url(url: str) -> str:
    """``url``, or whatever stands in its place, without the password that it may hold."""
    return _password.sub(r"\1…@", url)


def check_rest_api(url: str, scheme: str, host: str | None) -> None:
    """Raise Refused where ``url``, which was taken apart to these, is none that a REST API can have."""
    if scheme not in ("http", "https") or not host:
        raise Refused(
            f"{shown_url(url)!r} is no URL of a REST API: it must begin with http://HOST:PORT or https://HOST:PORT"
        )


def misread(url: str) -> str:
    """What is said of an answer from ``url``, which may be shown, that has another shape than it should."""
    return f"{url} answered, but not as Dovetail's REST API does"
