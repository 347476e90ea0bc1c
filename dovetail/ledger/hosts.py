"""Looks up host names. Opens no connection."""

import socket


def needs_ipv6(url: str) -> bool:
    """Whether a socket needs IPv6 to reach ``url``: the host is an IPv6 address, or a name with IPv6 addresses only.

    False for unknown names. Blocks until the name is looked up.
    """
    host = url.partition("://")[2].rpartition(":")[0]
    if host.startswith("["):
        return True
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return {family for family, *_ in addresses} == {socket.AF_INET6}
