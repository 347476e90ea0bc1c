"""Whoever reaches the port can change no setting: the node judges settings itself, and no other family writes there."""

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack

import pytest

from dovetail.ledger.settings import (
    APPROVAL_THRESHOLD,
    AUTHORIZED_KEYS,
    FAMILY_NAME,
    NAMESPACE,
    decode_setting,
    encode_setting,
    setting_address,
)
from dovetail.ledger.transaction import decode_transaction
from protos import settings_pb2
from protos.packed_pb2 import PackedProcessRequest
from protos.validator_pb2 import Message as Envelope
from tests.system.e2e.clients import Api, Author
from tests.system.e2e.conftest import Networks
from tests.system.e2e.conftest import author as author
from tests.system.e2e.conftest import networks as networks
from tests.system.e2e.network import Network
from tests.system.faults.liar import answer, ok
from tests.system.independent import protobuf_wire as wire
from tests.system.independent.bare_processor import (
    BareProcessor,
    ProcessRequest,
    Registration,
    RegistrationError,
    StateAccess,
)
from tests.system.independent.client import Batch
from tests.system.independent.messages import Message, MessageType

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

KEYS_AT = setting_address(AUTHORIZED_KEYS)
CONNECTIONS = 6
FORGED = 300
ROGUE, ROGUE_NAMESPACE = "rogue", "abcdef"


@pytest.fixture
def node(networks: Networks) -> tuple[Network, Api]:
    network = networks()
    network.up()
    return network, networks.api(network)


class Forger(BareProcessor):
    """Writes ``key`` as an authorized key wherever a transaction may write. ``packed``: announces packed execution."""

    def __init__(self, url: str, family: str, namespaces: Sequence[str], key: str, packed: bool, version: str = "1.0"):
        super().__init__(url, family, version, namespaces, self._forge)
        self._packed = packed
        self._leaf = encode_setting({AUTHORIZED_KEYS: key})
        self.tasks = 0

    def _forge(self, request: ProcessRequest, state: StateAccess) -> None:
        self.tasks += 1
        state.set(dict.fromkeys(request.header.outputs, self._leaf))

    def register(self) -> Registration:
        if not self._packed:
            return super().register()
        known: list[tuple[int, wire.Value]] = [(1, self.family), (2, self.version)]
        fields = [*known, *wire.repeated(4, self.namespaces), (5, 4096), (6, 1), (1000, 2)]
        answered = wire.decode(self.request(MessageType.TP_REGISTER_REQUEST, wire.encode(fields)).content)
        if wire.get_int(answered, 1) != 1:
            raise RegistrationError(wire.get_text(answered, 1001))
        return Registration(1, 1)

    def _on_message(self, identity: bytes, message: Message) -> None:
        if message.message_type != Envelope.PACKED_PROCESS_REQUEST:
            super()._on_message(identity, message)
            return
        self.tasks += 1
        task = PackedProcessRequest.FromString(message.content)
        outputs = [[decode_transaction(raw).header.outputs for raw in unit.transactions] for unit in task.units]
        content = answer(*([ok(dict.fromkeys(each, self._leaf)) for each in unit] for unit in outputs))
        self.send(Message(Envelope.PACKED_PROCESS_RESPONSE, message.correlation_id, content))


def proposal(author: Author, setting: str) -> Batch:
    """A change of a setting. Proposals of different settings may run at different processors."""
    data = settings_pb2.SettingProposal(setting=setting, value="forged", nonce="1")
    payload = settings_pb2.SettingsPayload(
        action=settings_pb2.SettingsPayload.PROPOSE, data=data.SerializeToString()
    ).SerializeToString()
    place = setting_address(setting)
    inputs = [place, KEYS_AT, setting_address(APPROVAL_THRESHOLD)]
    return author.batch(author.transaction(FAMILY_NAME, payload, inputs=inputs, outputs=[place]))


def keys(api: Api) -> dict[str, str]:
    return decode_setting(api.leaf(KEYS_AT))


@pytest.mark.parametrize("packed", [False, True])
def test_processors_of_the_settings_family_judge_nothing(
    node: tuple[Network, Api], author: Author, packed: bool
) -> None:
    network, api = node
    before = keys(api)
    with ExitStack() as stack:
        forgers = [
            stack.enter_context(Forger(network.validator_url, FAMILY_NAME, [NAMESPACE], author.public_key, packed))
            for _ in range(CONNECTIONS)
        ]
        forged = [proposal(author, f"forged.{number}") for number in range(FORGED)]
        api.accept(*forged)
        assert Counter(api.settle(*forged)) == {"INVALID": FORGED}
        assert api.details(forged[-1])["message"] == f"{author.public_key} is not authorized to change settings"
        # The holder of the key changes settings beside them.
        network.call("settings", "propose", "my.setting", "on", "--wait", "30")
        assert [forger.tasks for forger in forgers] == [0] * CONNECTIONS
    assert keys(api) == before


@pytest.mark.parametrize("packed", [False, True])
def test_no_other_family_reaches_the_settings(node: tuple[Network, Api], author: Author, packed: bool) -> None:
    network, api = node
    before = keys(api)

    def forger(*namespaces: str, family: str = ROGUE, version: str = "1.0") -> Forger:
        return Forger(network.validator_url, family, namespaces, author.public_key, packed, version)

    batch = author.batch(author.transaction(ROGUE, b"", inputs=[KEYS_AT], outputs=[KEYS_AT]))
    refused = [("000000",), ("",), ("00",), ("0000",), (KEYS_AT[:8],), (KEYS_AT,), (ROGUE_NAMESPACE, "000000")]
    for namespaces in refused:
        with pytest.raises(RegistrationError), forger(*namespaces):
            assert api.reject(batch)
    with pytest.raises(RegistrationError), forger(NAMESPACE, family=FAMILY_NAME, version="2.0"):
        pass
    with forger(ROGUE_NAMESPACE) as rogue:
        message = api.reject(batch)["message"]
        if packed:
            # A 1.x processor is refused at once, and tells its own reason.
            assert "in 000000 only sawtooth_settings writes" in message
        assert rogue.tasks
    assert keys(api) == before


def test_a_processor_that_is_not_needed_is_told_so(node: tuple[Network, Api]) -> None:
    network, api = node
    (up,) = network.processes
    processor = network.processor("families.settings.handler:SettingsHandler")
    processor.wait_for_line("sawtooth_settings 1.0 is registered, but gets no work: the node judges this family itself")
    up.wait_for_line("a processor registered for a family that the node judges itself, and gets no tasks of it")
    network.call("settings", "propose", "my.setting", "on", "--wait", "30")
    rows = [line for line in network.call("processors").out.splitlines() if line.startswith("sawtooth_settings")]
    assert [("in node" in row, "not needed" in row) for row in rows] == [(True, False), (False, True)]
    assert [entry["done"] for entry in api.get("/status/processors")["data"]][-1] == 0
