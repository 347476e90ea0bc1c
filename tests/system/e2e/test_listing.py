"""A family that lists its state by prefix, at our validator over pages and blocks, and at a 1.x validator.

These tests check the results of lists on a real node. Unit tests cover how pages are made.
"""

import hashlib
import json
import socket
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

import pytest

from processor_sdk import Context, Transaction, TransactionHandler
from tests.system.e2e.clients import Api, Author, WireClient
from tests.system.e2e.conftest import Networks
from tests.system.e2e.network import Network
from tests.system.e2e.process import DEADLINE_S
from tests.system.e2e.script_family import Gate
from tests.system.independent.bare_validator import BareValidator
from tests.system.independent.client import Batch
from tests.system.independent.messages import ProcessStatus

FAMILY = "e2e_listing"
NAMESPACE = hashlib.sha512(FAMILY.encode()).hexdigest()[:6]
HANDLER = "tests.system.e2e.test_listing:ListingHandler"


def address(number: int) -> str:
    """Addresses ascend with their numbers."""
    return f"{NAMESPACE}{number:064x}"


class ListingHandler(TransactionHandler[bytes]):
    """Steps as JSON: ``["set", start, count, value]``, ``["delete", start, count]``, ``["list", prefix]``.

    ``["list_in_two", prefix, entries, port]`` waits at a gate after so many entries. The receipt has a line (address,
    length, digest) for each listed entry.
    """

    family_name = FAMILY
    family_version = "1.0"
    namespaces = (NAMESPACE,)

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        for word, *arguments in json.loads(transaction.payload):
            if word == "set":
                start, count, value = arguments
                context.set_many({address(number): value.encode() for number in range(start, start + count)})
            elif word == "delete":
                start, count = arguments
                context.delete_many([address(number) for number in range(start, start + count)])
            else:
                entries = context.list(arguments[0])
                lines = []
                if word == "list_in_two":
                    lines += [shown(*entry) for entry in islice(entries, arguments[1])]
                    with socket.create_connection(("127.0.0.1", arguments[2]), DEADLINE_S) as held:
                        held.recv(1)
                lines += [shown(*entry) for entry in entries]
                context.add_receipt_data("\n".join(lines).encode())


def shown(name: str, data: bytes) -> str:
    """The line of one listed entry."""
    return f"{name} {len(data)} {hashlib.sha256(data).hexdigest()[:16]}"


def listing(state: dict[int, bytes], prefix: str = NAMESPACE) -> list[bytes]:
    """The receipt data of a list over this state."""
    entries = ((address(number), data) for number, data in sorted(state.items()))
    return ["\n".join(shown(*entry) for entry in entries if entry[0].startswith(prefix)).encode()]


class Node(NamedTuple):
    """A node with processors of the family."""

    network: Network
    api: Api
    wire: WireClient
    author: Author

    def batch(self, *steps: tuple[object, ...], inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = ()) -> Batch:
        payload = json.dumps(steps).encode()
        return self.author.batch(self.author.transaction(FAMILY, payload, inputs=inputs, outputs=outputs))

    def receipt_data(self, batch: Batch) -> list[bytes]:
        found = self.wire.receipts(batch.transactions[0].id)
        assert isinstance(found, list)
        return found[0].data


@pytest.fixture
def node_of(networks: Networks, author: Author) -> Iterator[Callable[..., Node]]:
    """Makes nodes with so many processors: ``node_of(2, DOVETAIL_…="…")``."""
    wires: list[WireClient] = []

    def make(processors: int, **environment: str) -> Node:
        network = networks(**environment)
        network.up()
        for started in [network.processor(HANDLER) for _ in range(processors)]:
            started.wait_logged("ready")
        wires.append(WireClient(network.validator_url))
        return Node(network, networks.api(network), wires[-1], author)

    yield make
    for wire in wires:
        wire.close()


SPACE = (NAMESPACE,)


def test_lists_meet_writers_in_their_order(node_of: Callable[..., Node]) -> None:
    """The batches of one submitted list write, delete and list hundreds of entries, over many pages."""
    node = node_of(2, DOVETAIL_LIMITS_STATE_LIST_ENTRIES_MAX="64")
    state: dict[int, bytes] = {}
    batches: list[Batch] = []
    expected: dict[str, list[bytes]] = {}
    for number in range(30):
        start, value = number * 25, f"value {number}"
        steps: list[tuple[object, ...]] = [("set", start, 40, value)]
        state |= dict.fromkeys(range(start, start + 40), value.encode())
        if number % 3 == 0:
            steps.append(("delete", start // 2, 30))
            for gone in range(start // 2, start // 2 + 30):
                state.pop(gone, None)
        # Every second batch also lists. After each other batch comes a batch that only lists.
        if number % 2:
            steps.append(("list", NAMESPACE))
        batches.append(node.batch(*steps, inputs=SPACE, outputs=SPACE))
        if number % 2 == 0:
            prefix = address(0)[:-2]
            batches.append(node.batch(("list", prefix), inputs=(prefix,)))
            expected[batches[-1].id] = listing(state, prefix)
        else:
            expected[batches[-1].id] = listing(state)
    node.api.commit(*batches)
    for batch in batches:
        assert node.receipt_data(batch) == expected.get(batch.id, [])
    assert len(listing(state)[0].splitlines()) > 300


def test_a_list_that_outlives_blocks_gives_the_state_that_it_began_with(
    node_of: Callable[..., Node], gate: Gate
) -> None:
    quick = {"DOVETAIL_LIMITS_BLOCK_EXECUTION_MS_MAX": "10"}
    node = node_of(2, DOVETAIL_LIMITS_STATE_LIST_ENTRIES_MAX="64", **quick)
    state = dict.fromkeys(range(300), b"old")
    node.api.commit(node.batch(("set", 0, 300, "old"), outputs=SPACE))
    prefix = address(0)[:-4]
    lister = node.batch(("list_in_two", prefix, 70, gate.port), inputs=(prefix,))
    node.api.accept(lister)
    gate.wait()
    meeting = node.batch(("set", 100, 300, "new"), ("delete", 0, 100), inputs=(prefix,), outputs=(prefix,))
    node.api.accept(meeting)
    # Each block writes one entry, which changes the trie above the listed entries.
    for number in range(3):
        name = address(16**5 + number)
        node.api.commit(node.batch(("set", 16**5 + number, 1, "elsewhere"), inputs=(name,), outputs=(name,)))
    assert node.api.words(lister, meeting) == ["PENDING", "PENDING"]
    gate.open()
    assert node.api.settle(lister, meeting) == ["COMMITTED", "COMMITTED"]
    assert node.receipt_data(lister) == listing(state, prefix)


def test_what_is_too_large_for_a_packed_message_lists_by_the_conversation(node_of: Callable[..., Node]) -> None:
    node = node_of(1, DOVETAIL_LIMITS_STATE_LIST_ENTRIES_MAX="64")
    value = "v" * 3_500_000
    large = range(5)
    for number in large:
        node.api.commit(node.batch(("set", number, 1, value), outputs=(address(number),)))
    rest = dict.fromkeys(range(256, 456), b"small")
    node.api.commit(node.batch(("set", 256, 200, "small"), outputs=SPACE))
    named = tuple(address(number) for number in large)
    both = node.batch(
        ("list", NAMESPACE),
        ("set", 300, 1, "own"),
        ("delete", 0, 1),
        ("list", NAMESPACE),
        inputs=(*named, NAMESPACE),
        outputs=SPACE,
    )
    node.api.commit(both)
    before = dict.fromkeys(large, value.encode()) | rest
    after = {number: data for number, data in before.items() if number} | {300: b"own"}
    assert node.receipt_data(both) == listing(before) + listing(after)


def test_an_undeclared_prefix_is_invalid_and_says_what_to_declare(node_of: Callable[..., Node]) -> None:
    node = node_of(1)
    details = node.api.reject(node.batch(("list", NAMESPACE), inputs=(address(1),)))
    message = json.dumps(details, ensure_ascii=False)
    assert f"may not list '{NAMESPACE}'" in message
    assert address(1) in message
    assert f'inputs=[…, \\"{NAMESPACE}\\"]' in message


def test_beside_a_validator_of_the_1x_line_it_is_a_clear_error(networks: Networks, author: Author) -> None:
    with BareValidator() as bare:
        started = networks().start("processor", HANDLER, "--connect", bare.url)
        bare.wait_for_registration(FAMILY, "1.0", DEADLINE_S)
        for steps, status in (([("list", NAMESPACE)], ProcessStatus.INTERNAL_ERROR), ([("set", 1, 1, "x")], 1)):
            made = author.transaction(FAMILY, json.dumps(steps).encode(), inputs=SPACE, outputs=SPACE)
            verdict = bare.process(made.header_bytes, made.payload, made.signature, {}, timeout=DEADLINE_S)
            assert verdict.status == status, verdict.message
            assert ("list needs Dovetail's validator" in verdict.message) is (status != ProcessStatus.OK)
        assert bare.unknown == []
        assert started.terminate() == 0
