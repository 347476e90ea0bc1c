"""The REST API's default URL, and the check and display of a URL. Nothing here sends a request."""

import re
from typing import Final

from dovetail.common.errors import Refused

DEFAULT_URL: Final = "http://127.0.0.1:8080"

# In NAME:REST, a REST that is not a port counts as a password. A malformed URL may have several @: take the last one.
_password = re.compile(r"\A((?:[^:/]*://)?[^/:@?#\[]*:)(?!//|\d*(?:[/?#]|$)).*@", re.DOTALL)


def shown_url(url: str) -> str:
    """``url``, which may be malformed, with its password replaced by an ellipsis."""
    return _password.sub(r"\1…@", url)


def check_rest_api(url: str, scheme: str, host: str | None) -> None:
    """Raise Refused if ``url``, parsed into ``scheme`` and ``host``, cannot be a REST API's."""
    if scheme not in ("http", "https") or not host:
        raise Refused(
            f"{shown_url(url)!r} is no URL of a REST API: it must begin with http://HOST:PORT or https://HOST:PORT"
        )


def misread(url: str) -> str:
    """The reason for refusing an answer of an unexpected shape. ``url`` must contain no password."""
    return f"{url} answered, but not as Dovetail's REST API does"
