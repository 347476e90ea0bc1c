"""URLs as the client sees them: the API's base URL, rebuilt from forwarding headers, and links to pages of a list.

Only forwarding headers from trusted proxies count. A value that is not a host, scheme or path is ignored and never
repeated in an answer (seed specification, Forwarding headers; API.md, Behind a proxy).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv6Address, ip_address
from urllib.parse import quote, unquote, urlencode

from starlette.datastructures import Headers
from starlette.types import Scope

from dovetail.rest_api.config import Network
from dovetail.rest_api.request.queries import Query, number

_HOST_CHARACTERS_MAX = 255
_PATH_CHARACTERS_MAX = 1024

_host = re.compile(r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*)|\[(?P<ipv6>[0-9A-Fa-f:.]+)\])(?::(?P<port>[0-9]{1,5}))?")
_path = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*+")

# One key=value of a Forwarded header with the character that ends it. RFC 7239 requires quotes around "/", ":" and
# "["; many proxies omit them. Possessive quantifiers keep the time linear for any input.
_pair = re.compile(
    r"""[ \t]*(?P<key>[!#$%&'*+.^_`|~0-9A-Za-z-]+)=(?:"(?P<quoted>(?:[^"\\]|\\.)*+)"|(?P<plain>[^",; \t]*))[ \t]*"""
    r"(?P<end>[;,]|\Z)"
)
_skipped = re.compile(r"""(?:[^",;]|"(?:[^"\\]|\\.)*+")*+(?:[;,]|\Z)""")

_absolute = re.compile(rb"https?://(?P<host>[^/]*)(?P<path>/.*)?", re.IGNORECASE | re.DOTALL)


def origin_form(scope: Scope) -> Scope:
    """``scope`` with path and host taken from the request line, if that holds a whole URL (RFC 9112, 3.2.2)."""
    found = _absolute.fullmatch(scope["raw_path"])
    if found is None:
        return scope
    path = found["path"] or b"/"
    headers = [(b"host", found["host"]), *(pair for pair in scope["headers"] if pair[0] != b"host")]
    return {**scope, "raw_path": path, "path": unquote(path.decode("latin-1")), "headers": headers}


def base_url(scope: Scope, trusted: Sequence[Network]) -> str:
    """The scheme, host and path prefix by which the client reached the API, without a slash at the end."""
    headers = Headers(scope=scope)
    scheme, host, prefix = scope["scheme"], _as_host(headers.get("host", "")) or _own_address(scope), ""
    if ("forwarded" in headers or any(name.startswith("x-forwarded-") for name in headers)) and _is_trusted(
        scope, trusted
    ):
        # Each header field is parsed alone, so that an open quote in one cannot hide what a proxy added in the next.
        pairs = [pair for field in headers.getlist("forwarded") for pair in _parse_forwarded(field)]
        # The leftmost value of a key counts.
        forwarded = dict(reversed(pairs))
        scheme = _chosen(forwarded, headers, "proto", _as_scheme) or scheme
        host = _chosen(forwarded, headers, "host", _as_host) or host
        prefix = _chosen(forwarded, headers, "path", _as_prefix) or prefix
    return f"{scheme}://{host}{prefix}"


def url(base: str, path: str, pairs: Iterable[tuple[str, str]] = ()) -> str:
    """The URL of ``path`` (decoded) under ``base``, with ``pairs`` as its query."""
    query = urlencode(list(pairs), safe=",", quote_via=quote)
    return f"{base}{quote(path)}?{query}" if query else f"{base}{quote(path)}"


class PageLinks:
    """The links of one page. Each names the head at which the list was read, and keeps the client's parameters."""

    def __init__(self, base: str, path: str, query: Query, head_id: str) -> None:
        self._base, self._path, self._query, self._head = base, path, query, ("head", head_id)

    def this(self) -> str:
        return self._url({"head"})

    def paging(self, start_index: int, total_count: int, length: int, last_key: str) -> dict[str, object]:
        """The ``paging`` member. ``last_key``: the id or address of the last of the page's ``length`` items.

        ``previous`` and ``next`` lead to the ends of the list. If the client gave both ``min`` and ``max``, ``next``
        does not lead beyond that ``max``.
        """
        paging: dict[str, object] = {"start_index": start_index, "total_count": total_count}
        if start_index > 0:
            paging["previous"] = self._url({"head", "min", "max"}, ("max", str(start_index - 1)))
        following = start_index + length
        last = self._query.first("max") if self._query.first("min") is not None else None
        if following < total_count and not _is_reached(last, following - 1, last_key):
            dropped = {"head", "min"} if last is not None else {"head", "min", "max"}
            paging["next"] = self._url(dropped, ("min", str(following)))
        return paging

    def _url(self, dropped: set[str], *added: tuple[str, str]) -> str:
        kept = [pair for pair in self._query.pairs if pair[0] not in dropped]
        return url(self._base, self._path, [self._head, *kept, *added])


def _is_reached(last: str | None, index: int, key: str) -> bool:
    if last is None:
        return False
    named = number(last) if last != key else index
    return named is not None and named <= index


def _is_trusted(scope: Scope, trusted: Sequence[Network]) -> bool:
    client = scope.get("client")
    try:
        address = ip_address(client[0]) if client else None
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address is not None and any(address in network for network in trusted)


def _own_address(scope: Scope) -> str:
    host, port = scope.get("server") or ("localhost", None)
    host = f"[{host}]" if ":" in host else host
    return host if port is None else f"{host}:{port}"


def _chosen(forwarded: dict[str, str], headers: Headers, key: str, usable: Callable[[str], str | None]) -> str | None:
    """The first usable value of one key: Forwarded wins over X-Forwarded-*."""
    found = usable(forwarded.get(key, ""))
    return usable(headers.get(f"x-forwarded-{key}", "").split(",")[0].strip()) if found is None else found


def _parse_forwarded(text: str) -> list[tuple[str, str]]:
    """The key-value pairs of a Forwarded header, in order. Other text is skipped; an open quote ends the header."""
    pairs, position = [], 0
    while position < len(text):
        found = _pair.match(text, position)
        if found is not None:
            quoted = found["quoted"]
            value = found["plain"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            pairs.append((found["key"].lower(), value))
        else:
            found = _skipped.match(text, position)
        position = max(found.end(), position + 1) if found is not None else len(text)
    return pairs


def _as_scheme(text: str) -> str | None:
    scheme = text.lower()
    return scheme if scheme in ("http", "https") else None


def _as_host(text: str) -> str | None:
    found = _host.fullmatch(text) if len(text) <= _HOST_CHARACTERS_MAX else None
    if found is None or (found["port"] is not None and not 0 < int(found["port"]) <= 65535):
        return None
    if found["ipv6"] is not None:
        try:
            IPv6Address(found["ipv6"])
        except ValueError:
            return None
    return text


def _as_prefix(text: str) -> str | None:
    """The prefix without a slash at its end; empty for ``/``, None for an unusable text."""
    if not text or len(text) > _PATH_CHARACTERS_MAX or _path.fullmatch(text) is None:
        return None
    path = text.strip("/")
    usable = "//" not in text and not {".", ".."} & set(unquote(path).split("/"))
    return (path and f"/{path}") if usable else None
