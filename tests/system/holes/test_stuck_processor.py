"""A processor that answers pings and never a task: its batches commit at another processor, and the node names it."""

import json
import threading
import time
from contextlib import closing

import pytest

from tests.system.e2e.clients import Author
from tests.system.e2e.conftest import Networks
from tests.system.e2e.conftest import author as author
from tests.system.e2e.conftest import networks as networks
from tests.system.e2e.metrics import metric, wait_for_metric
from tests.system.e2e.process import DEADLINE_S
from tests.system.independent import protobuf_wire as wire
from tests.system.independent.bare_processor import BareProcessor, ProcessRequest, StateAccess, intkey_apply
from tests.system.independent.client import INTKEY_NAMESPACE
from tests.system.independent.messages import Message, MessageType

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

BATCHES = 300
_SOON_S = 30.0


class Hangs:
    """Applies nothing until it is closed."""

    def __init__(self) -> None:
        self._released = threading.Event()

    def close(self) -> None:
        self._released.set()

    def __call__(self, request: ProcessRequest, state: StateAccess) -> None:
        self._released.wait(DEADLINE_S * 2)
        intkey_apply(request, state)


class PackedHangs(BareProcessor):
    """Announces packed execution, answers pings, and puts every packed task aside."""

    def __init__(self, url: str) -> None:
        super().__init__(url, "intkey", "1.0", [INTKEY_NAMESPACE], intkey_apply)
        self.tasks: list[Message] = []

    def register(self) -> None:  # type: ignore[override]
        fields: list[tuple[int, wire.Value]] = [
            (1, "intkey"),
            (2, "1.0"),
            (4, INTKEY_NAMESPACE),
            (5, 4096),
            (6, 1),
            (1000, 2),
        ]
        answer = self.request(MessageType.TP_REGISTER_REQUEST, wire.encode(fields))
        assert wire.get_int(wire.decode(answer.content), 1) == 1

    def _on_message(self, identity: bytes, message: Message) -> None:
        if message.message_type >= 1000:
            self.tasks.append(message)
        else:
            super()._on_message(identity, message)


@pytest.mark.parametrize("packed", [False, True])
def test_its_batches_commit_at_another(networks: Networks, author: Author, packed: bool) -> None:
    network = networks(DOVETAIL_LIMITS_TASK_ANSWER_MS_MAX="1500", DOVETAIL_LIMITS_PROCESSOR_PING_MS="500")
    up, api = network.up(), networks.api(network)
    hangs = Hangs()
    stuck = (
        PackedHangs(network.validator_url)
        if packed
        else BareProcessor(network.validator_url, "intkey", "1.0", [INTKEY_NAMESPACE], hangs, timeout=DEADLINE_S * 2)
    )
    with stuck, closing(hangs):
        batches = [author.batch(author.intkey("set", f"n{number}", number)) for number in range(BATCHES)]
        began_s = time.monotonic()
        api.accept(*batches)
        # The answer comes when no batch is pending.
        assert set(api.settle(*batches)) == {"COMMITTED"}
        assert time.monotonic() - began_s < _SOON_S
        taken = len(stuck.tasks) if isinstance(stuck, PackedHangs) else len(stuck.requests)
        assert taken, "the stuck processor got no task, so nothing was tried"

        # The processor is shown as stuck, and gets nothing more.
        wait_for_metric(api, "dovetail_validator_condition", 1)
        assert metric(api, "dovetail_validator_condition", condition="processor_stuck") == 1
        assert metric(api, "dovetail_validator_processor_connections", state="stuck") == 1
        (held,) = api.get("/readyz")["data"]["conditions"]
        assert (held["condition"], stuck.identity.hex()[:16] in held["message"]) == ("processor_stuck", True)
        assert "processor_stuck" in network.call("status").out
        states = {one["connection_id"]: one["state"] for one in json.loads(network.call("processors", "--json").out)}
        assert states[stuck.identity.hex()] == "stuck"
        up.wait_logged("condition began", condition="processor_stuck")
        api.commit(*[author.batch(author.intkey("set", f"m{number}", number)) for number in range(100)])
        assert taken == (len(stuck.tasks) if isinstance(stuck, PackedHangs) else len(stuck.requests))
        assert stuck.pings_answered

        # Its late answers change nothing, but it gets work again.
        if isinstance(stuck, PackedHangs):
            for task in stuck.tasks:
                stuck.send(Message(task.message_type + 1, task.correlation_id, b""))
        else:
            hangs.close()
        wait_for_metric(api, "dovetail_validator_condition", 0)
        assert {api.intkey(f"n{number}") == number for number in range(BATCHES)} == {True}
        # Nothing of it disturbs the ends of the batches: each is in one block.
        assert metric(api, "dovetail_validator_batches_total", outcome="committed") == 1 + BATCHES + 100
