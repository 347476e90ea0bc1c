"""What the validator's host name stands for. No connection."""

import socket


def needs_ipv6(url: str) -> bool:
    """Whether a socket must speak IPv6 to reach ``url``: its host is such an address, or a name of such ones alone.

    A name of both kinds is reached by IPv4, and so is one that nobody knows yet. Waits until the name is looked up.
    """
    host = url.partition("://")[2].rpartition(":")[0]
    if host.startswith("["):
        return True
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return {family for family, *_ in found} == {socket.AF_INET6}
