"""What an operator may set on a REST API. Reading files, environment and flags is the command line's business."""

from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final

from dovetail.ledger.limits import Limits

Network = IPv4Network | IPv6Network

ONE_KEY_ALONE: Final = "validator_key and connection_key: set both, or neither"

POSITIVE_KEYS: Final = (
    "timeout_s",
    "requests_in_flight_max",
    "request_bytes_in_flight_max",
    "request_s_max",
    "body_bytes_in_flight_max",
    "answer_s_max",
    "answer_bytes_in_flight_max",
)
"""The settings of ``RestConfig`` that are whole numbers from 1."""


@dataclass(frozen=True)
class RestConfig:
    """One typed configuration. A wrong value raises ValueError that names key, value and what is allowed."""

    bind: str = "127.0.0.1:8080"
    """HOST:PORT to listen on; an IPv6 host in brackets."""

    validator: str = "tcp://127.0.0.1:4004"

    timeout_s: int = 300
    """How long the validator may take to answer, and the wait of a client that names no number of seconds."""

    trusted_proxies: tuple[str, ...] = ("127.0.0.1", "::1")
    """Addresses or networks (CIDR) whose forwarding headers are believed."""

    requests_in_flight_max: int = 20_000
    """Questions to the validator that wait for their answer at one time."""

    request_bytes_in_flight_max: int = 256 * 1024 * 1024
    """What those questions may hold together."""

    request_s_max: int = 60
    """How long a request may take to arrive whole, from its first byte."""

    body_bytes_in_flight_max: int = 256 * 1024 * 1024
    """What the bodies that are being read may hold together; only what came of them counts."""

    answer_s_max: int = 300
    """How long a client may take to read an answer, from when it first has to be waited for."""

    answer_bytes_in_flight_max: int = 256 * 1024 * 1024
    """What large answers from the ledger may hold together, until their clients take them."""

    limits: Limits = field(default_factory=Limits)

    validator_key: str = ""
    """The file of the validator's public connection key; empty: its port asks for no key."""

    connection_key: str = ""
    """The file of this REST API's secret connection key; both or neither."""

    def __post_init__(self) -> None:
        split_bind(self.bind)
        networks(self.trusted_proxies)
        for key in POSITIVE_KEYS:
            if getattr(self, key) < 1:
                raise ValueError(f"{key}: {getattr(self, key)} is not a positive integer")
        if bool(self.validator_key) != bool(self.connection_key):
            raise ValueError(ONE_KEY_ALONE)


def split_bind(bind: str) -> tuple[str, int]:
    """Host (without brackets) and port of HOST:PORT. Raises ValueError."""
    host, colon, port = bind.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    usable = bool(host) and (bracketed or ":" not in host)
    if not colon or not usable or not (port.isascii() and port.isdigit() and len(port) <= 5) or int(port) > 65535:
        raise ValueError(f"bind: {bind!r} is not HOST:PORT with a port of 0 to 65535 (IPv6: [HOST]:PORT)")
    return (host[1:-1] if bracketed else host), int(port)


def networks(entries: tuple[str, ...]) -> tuple[Network, ...]:
    """The trusted proxies as networks; a single address is a network of one. Raises ValueError."""
    found: list[Network] = []
    for entry in entries:
        try:
            found.append(ip_network(entry))
        except ValueError as error:
            raise ValueError(f"trusted_proxies: {entry!r} is no address or network: {error}") from None
    return tuple(found)
