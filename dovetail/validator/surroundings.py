"""What a node is given: port, verifiers, engine, clocks and the families that it judges itself."""

import time
from collections.abc import Callable
from typing import NamedTuple

from dovetail.validator.admission.verifier import VerifierPool
from dovetail.validator.config import ValidatorConfig
from dovetail.validator.core.consensus.engine import Engine
from dovetail.validator.core.consensus.solo import SoloEngine
from dovetail.validator.processors.own import OwnFamilies
from dovetail.validator.transport.access import AccessPolicy
from dovetail.validator.transport.gateway import Gateway

Callback = Callable[[], None]
Messages = Callable[[object], None]
"""Takes one message of an engine."""


class EngineConnection(NamedTuple):
    """An engine, and its connection to the engines of other nodes."""

    engine: Engine
    send: Messages
    close: Callback


class Surroundings(NamedTuple):
    """The interfaces of one node. The event loop and its timers are not included: they are asyncio's own."""

    open_gateway: Callable[[ValidatorConfig, AccessPolicy, Callback, Callback], Gateway]
    """Opens the port. The first callback is called when requests wait, the second when a connection closed. Raises
    CannotBind."""

    open_verifiers: Callable[[ValidatorConfig, Callback], VerifierPool]
    """Starts the verifiers. The callback is called after each delivery of results."""

    open_engine: Callable[[int, Messages], EngineConnection]
    """Opens the engine. Takes the number of the next block, and a function that gets each message for the engine."""

    clock_s: Callable[[], float]
    """Seconds of a steady clock."""

    time_ms: Callable[[], int]
    """Milliseconds since 1970-01-01 UTC."""

    own_families: OwnFamilies
    """The families that the node judges itself."""


def _open_gateway(
    config: ValidatorConfig, access: AccessPolicy, on_sweep: Callback, on_disconnect: Callback
) -> Gateway:
    return Gateway(config.bind, config.limits, on_sweep, on_disconnect, access)


def _open_verifiers(config: ValidatorConfig, on_results: Callback) -> VerifierPool:
    return VerifierPool(config.verifier_processes, on_results)


def open_solo_engine(height: int, on_message: Messages) -> EngineConnection:
    """The engine of a network of one node, which sends and receives nothing."""

    def send(message: object) -> None:
        raise AssertionError(f"the solo engine sends nothing: {message!r}")

    return EngineConnection(SoloEngine(height), send, lambda: None)


def _time_ms() -> int:
    return time.time_ns() // 1_000_000


def on_machine(own_families: OwnFamilies) -> Surroundings:
    """Sockets, processes and clocks of the machine."""
    return Surroundings(_open_gateway, _open_verifiers, open_solo_engine, time.monotonic, _time_ms, own_families)
