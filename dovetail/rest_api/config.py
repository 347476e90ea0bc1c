"""The settings of a REST API. Files, environment variables and options are read elsewhere (``dovetail.node``)."""

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
"""The settings of ``RestConfig`` that are positive integers."""


@dataclass(frozen=True)
class RestConfig:
    """The settings of one REST API. A wrong value raises ValueError with its key, the value and the allowed values."""

    bind: str = "127.0.0.1:8080"
    """HOST:PORT to listen on; an IPv6 host in brackets."""

    validator: str = "tcp://127.0.0.1:4004"

    timeout_s: int = 300
    """The time limit of an answer from the validator, and the wait of a client that gives no number of seconds."""

    trusted_proxies: tuple[str, ...] = ("127.0.0.1", "::1")
    """The addresses or networks (CIDR) whose forwarding headers count."""

    requests_in_flight_max: int = 20_000
    """The number of requests to the validator that may wait for an answer at one time."""

    request_bytes_in_flight_max: int = 256 * 1024 * 1024
    """The bytes that waiting requests to the validator may hold together."""

    request_s_max: int = 60
    """The time in which an HTTP request must arrive, from its first byte to its last."""

    body_bytes_in_flight_max: int = 256 * 1024 * 1024
    """The bytes that partly received request bodies may hold together."""

    answer_s_max: int = 300
    """The time a client has to read an answer, from the first time that sending blocks."""

    answer_bytes_in_flight_max: int = 256 * 1024 * 1024
    """The bytes that large answers from the ledger may hold together while their clients read them."""

    limits: Limits = field(default_factory=Limits)

    validator_key: str = ""
    """The file of the validator's public connection key; empty if the validator's port requires no key."""

    connection_key: str = ""
    """The file of this REST API's secret connection key. Set both keys or neither."""

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
    """The trusted proxies as networks; an address becomes a network of one. Raises ValueError."""
    found: list[Network] = []
    for entry in entries:
        try:
            found.append(ip_network(entry))
        except ValueError as error:
            raise ValueError(f"trusted_proxies: {entry!r} is no address or network: {error}") from None
    return tuple(found)
