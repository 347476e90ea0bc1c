"""What a node has of the world outside: its gateway, its verifiers and its clock. A simulation brings others.

Nothing of what they are for is known here; ``dovetail.validator.node`` opens them when it has somebody who listens.
"""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from dovetail.validator.admission.verifier import VerifierPool
from dovetail.validator.config import ValidatorConfig
from dovetail.validator.transport.access import AccessPolicy
from dovetail.validator.transport.gateway import Gateway

Told = Callable[[], None]


class Surroundings(NamedTuple):
    """``clock_s``: seconds of a steady clock. The loop that runs, its timers and its clock are asyncio's own."""

    open_gateway: Callable[[ValidatorConfig, AccessPolicy, Told, Told], Gateway]
    """With what is called when requests wait, and when a connection closed. Raises CannotBind."""

    open_verifiers: Callable[[ValidatorConfig, Told], VerifierPool]
    """With what is called after results were handed on."""

    clock_s: Callable[[], float]


def _open_gateway(config: ValidatorConfig, access: AccessPolicy, on_sweep: Told, on_disconnect: Told) -> Gateway:
    return Gateway(config.bind, config.limits, on_sweep, on_disconnect, access)


def _open_verifiers(config: ValidatorConfig, on_results: Told) -> VerifierPool:
    return VerifierPool(config.verifier_processes, on_results)


MACHINE: Final = Surroundings(_open_gateway, _open_verifiers, time.monotonic)
"""Sockets, processes and clock of the machine."""
