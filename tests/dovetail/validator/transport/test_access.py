"""The validator's port on real sockets: which keys may connect, and what each may send."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import structlog
import zmq
from zmq.utils.monitor import recv_monitor_message

from dovetail.common.keys import KeyFiles
from dovetail.ledger.building import encode_batch_list
from dovetail.ledger.connection_keys import ConnectionPublicKey
from dovetail.ledger.limits import Limits
from dovetail.ledger.secret_files import changeable_by_others
from dovetail.validator.config import ValidatorConfig
from dovetail.validator.node import Node
from dovetail.validator.transport import access as access_module
from dovetail.validator.transport import connections
from dovetail.validator.transport.access import OPEN, CannotOpen, Right, is_local, read_access_policy
from dovetail.validator.transport.gateway import CannotBind, Gateway
from dovetail.validator.transport.rights import right_for
from protos.client_batch_submit_pb2 import ClientBatchSubmitResponse
from protos.node_pb2 import NodeStatusResponse, NotAllowed
from protos.processor_pb2 import TpProcessResponse, TpRegisterRequest, TpRegisterResponse, TpUnregisterResponse
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.nodes import MACHINE, process, register, signed_batch
from tests.dovetail.validator.peers import LIMITS, OpenPort, Peer, run
from tests.dovetail.validator.support import LIMITS as NODE_LIMITS
from tests.dovetail.validator.support import SIGNER, commit, make_batch, open_store
from tests.keys import Ring, make_ring

FAILED = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL


@pytest.fixture
def ring(tmp_path: Path) -> Ring:
    return make_ring(tmp_path / "keys")


def kept(ring: Ring, path: Path, bind: str = "tcp://127.0.0.1:*", limits: Limits = NODE_LIMITS) -> ValidatorConfig:
    return ValidatorConfig(
        path, path / "key", bind, 1, limits, connection_key=str(ring.validator.private), allowed_keys=str(ring.allowed)
    )


@asynccontextmanager
async def open_kept(ring: Ring, path: Path, limits: Limits = NODE_LIMITS) -> AsyncIterator[Node]:
    """A node behind a restricted port, with a genesis block."""
    store = open_store(path, limits)
    try:
        commit(store, [make_batch("genesis")])
        config = kept(ring, path, limits=limits)
        node = Node(config, store, SIGNER, MACHINE, read_access_policy(config))
        try:
            await node.restore()
            yield node
        finally:
            node.close()
    finally:
        store.close()


def peer_of(node: Node, ring: Ring, own: KeyFiles, stack: ExitStack) -> Peer:
    peer = Peer(node.endpoint, keys=(own, ring.validator))
    stack.callback(peer.close)
    return peer


async def ask(peer: Peer, message_type: int, content: bytes = b"") -> Envelope:
    """Send a request, and skip all other messages before its answer."""
    peer.send(message_type, "asked", content)
    while True:
        answer = await peer.receive()
        if answer.correlation_id == "asked":
            return answer


REGISTRATION = TpRegisterRequest(family="nobody's", version="1.0").SerializeToString()


def test_a_processors_key_judges_and_a_clients_key_hands_in(ring: Ring, tmp_path: Path) -> None:
    async def test() -> None:
        with ExitStack() as stack:
            async with open_kept(ring, tmp_path) as node:
                processor, client = (peer_of(node, ring, own, stack) for own in (ring.processor, ring.client))
                await register(processor)
                batch = signed_batch()
                answer = await ask(client, Envelope.CLIENT_BATCH_SUBMIT_REQUEST, encode_batch_list([batch]))
                told = ClientBatchSubmitResponse.FromString(answer.content)
                assert (told.status, list(told.batch_ids)) == (ClientBatchSubmitResponse.OK, [batch.id])
                await process(processor, [TpProcessResponse.OK])
                status = await ask(client, Envelope.NODE_STATUS_REQUEST)
                while NodeStatusResponse.FromString(status.content).head_num == 0:
                    status = await ask(client, Envelope.NODE_STATUS_REQUEST)

    run(test)


def test_a_clients_key_registers_no_processor_and_the_log_names_it(ring: Ring, tmp_path: Path) -> None:
    async def test() -> None:
        with ExitStack() as stack, structlog.testing.capture_logs() as logs:
            async with open_kept(ring, tmp_path) as node:
                client = peer_of(node, ring, ring.client, stack)
                answer = await ask(client, Envelope.TP_REGISTER_REQUEST, REGISTRATION)
                told = TpRegisterResponse.FromString(answer.content)
                assert told.status == TpRegisterResponse.ERROR
                key = ring.client.public_key
                assert told.message == (
                    f"TP_REGISTER_REQUEST is refused: the key client ({key}) is not among the allowed processors of"
                    " this validator, it is listed under clients: give its process a key that is listed under"
                    " processors, or put its .pub file into the folder processors of allowed_keys too and restart the"
                    " validator"
                )
                unregistered = await ask(client, Envelope.TP_UNREGISTER_REQUEST)
                assert TpUnregisterResponse.FromString(unregistered.content).status == TpUnregisterResponse.ERROR
                # A processor's message about its work gets no answer: the ping after it is answered first.
                client.send(Envelope.TP_PROCESS_RESPONSE, "work")
                await client.ping()
                assert not list(node._processors.statuses())
        refused = [entry for entry in logs if entry["event"].startswith("message refused: ")]
        assert [entry["type"] for entry in refused] == [
            "TP_REGISTER_REQUEST",
            "TP_UNREGISTER_REQUEST",
            "TP_PROCESS_RESPONSE",
        ]
        named = {(entry["name"], entry["key"], entry["list"], entry["needs"]) for entry in refused}
        assert named == {("client", key, "clients", "processors")}

    run(test)


def test_a_processors_key_hands_in_and_reads_nothing(ring: Ring, tmp_path: Path) -> None:
    async def test() -> None:
        with ExitStack() as stack:
            async with open_kept(ring, tmp_path) as node:
                processor, client = (peer_of(node, ring, own, stack) for own in (ring.processor, ring.client))
                asked = {
                    Envelope.CLIENT_BATCH_SUBMIT_REQUEST: encode_batch_list([signed_batch()]),
                    Envelope.CLIENT_BATCH_STATUS_REQUEST: b"",
                    Envelope.LIST_REQUEST: b"",
                    Envelope.NODE_STATUS_REQUEST: b"",
                    Envelope.METRICS_REQUEST: b"",
                    Envelope.PENDING_DROP_REQUEST: b"",
                }
                for message_type, content in asked.items():
                    answer = await ask(processor, message_type, content)
                    assert answer.message_type == Envelope.NOT_ALLOWED
                    told = NotAllowed.FromString(answer.content).message
                    assert told.startswith(f"{Envelope.MessageType.Name(message_type)} is refused: the key processor (")
                    assert ") is not among the allowed clients of this validator, it is listed under processors" in told
                status = NodeStatusResponse.FromString((await ask(client, Envelope.NODE_STATUS_REQUEST)).content)
                assert status.pending_batches == 0

    run(test)


def test_a_key_on_both_lists_may_say_all(ring: Ring, tmp_path: Path) -> None:
    async def test() -> None:
        with ExitStack() as stack:
            async with open_kept(ring, tmp_path) as node:
                peer = peer_of(node, ring, ring.both, stack)
                await register(peer)
                status = NodeStatusResponse.FromString((await ask(peer, Envelope.NODE_STATUS_REQUEST)).content)
                assert status.status == NodeStatusResponse.OK

    run(test)


async def failure(node: Node, own: KeyFiles | None, server: KeyFiles | None) -> int:
    """The event with which the connecting side sees its handshake fail."""
    peer = Peer(node.endpoint, keys=(own, server) if own and server else None, events=FAILED)
    try:
        # The message is long enough that bytes of it remain unread.
        peer.send(Envelope.TP_REGISTER_REQUEST, "register", REGISTRATION)
        while not await asyncio.to_thread(peer.monitor.poll, 10_000):
            pass
        event = int(recv_monitor_message(peer.monitor)["event"])
        assert peer.arrived.empty()
        return event
    finally:
        peer.close()


def test_nobody_else_comes_in(ring: Ring, tmp_path: Path) -> None:
    async def test() -> None:
        with structlog.testing.capture_logs() as logs:
            async with open_kept(ring, tmp_path) as node:
                # The peers use an unlisted key, a wrong key for the validator, or no key at all.
                assert await failure(node, ring.stranger, ring.validator) == zmq.EVENT_HANDSHAKE_FAILED_AUTH
                assert await failure(node, ring.processor, ring.stranger) & FAILED
                assert await failure(node, None, None) & FAILED
                assert not list(node._processors.statuses())
        reasons = {entry["reason"] for entry in logs if entry["event"] == "connection refused"}
        assert f"the key {ring.stranger.public_key} is not in allowed_keys" in reasons
        assert all(entry["address"] == "127.0.0.1" for entry in logs if entry["event"] == "connection refused")

    run(test)


def test_a_key_that_is_taken_off_the_list_is_refused_from_the_next_start(ring: Ring, tmp_path: Path) -> None:
    """The list is read at start. Until then a removed key serves on."""

    async def test() -> None:
        with structlog.testing.capture_logs() as logs:
            async with open_kept(ring, tmp_path / "before") as node:
                with ExitStack() as stack:
                    peer = peer_of(node, ring, ring.processor, stack)
                    await register(peer)
                    (ring.allowed / "processors" / "processor.pub").unlink()
                    await peer.ping()
            async with open_kept(ring, tmp_path / "after") as node:
                assert await failure(node, ring.processor, ring.validator) == zmq.EVENT_HANDSHAKE_FAILED_AUTH
                assert not list(node._processors.statuses())
                with ExitStack() as stack:
                    await peer_of(node, ring, ring.both, stack).ping()
        reasons = {entry["reason"] for entry in logs if entry["event"] == "connection refused"}
        assert f"the key {ring.processor.public_key} is not in allowed_keys" in reasons

    run(test)


class Recorder:
    """A relay in front of a port that keeps each piece that the connecting side sent."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.sent: list[bytes] = []

    async def __aenter__(self) -> "Recorder":
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.endpoint = f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, here = await asyncio.open_connection("127.0.0.1", self._port)

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter, note: list[bytes]) -> None:
            while piece := await source.read(65_536):
                note.append(piece)
                sink.write(piece)
            sink.close()

        await asyncio.gather(copy(reader, here, self.sent), copy(there, writer, []))


@pytest.mark.parametrize("pace", ["at once", "piece for piece"])
def test_a_recorded_conversation_that_is_sent_again_does_nothing(ring: Ring, tmp_path: Path, pace: str) -> None:
    """Each connection has keys of its own, so that a recording is no handshake, although its key is listed."""

    async def test() -> None:
        seen = asyncio.Queue[bytes]()

        def sweep() -> None:
            for request in gateway.requests():
                seen.put_nowait(request.content)

        gateway = Gateway("tcp://127.0.0.1:*", LIMITS, sweep, lambda: None, read_access_policy(kept(ring, tmp_path)))
        try:
            port = urlsplit(gateway.endpoint).port
            assert port
            async with Recorder(port) as recorder:
                peer = Peer(recorder.endpoint, keys=(ring.client, ring.validator))
                peer.send(Envelope.CLIENT_BATCH_SUBMIT_REQUEST, "recorded", b"in plain text")
                assert await seen.get() == b"in plain text"
                peer.close()
            recorded = b"".join(recorder.sent)
            assert b"CURVE" in recorded
            assert b"in plain text" not in recorded
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with suppress(ConnectionError):
                for piece in recorder.sent if pace == "piece for piece" else [recorded]:
                    writer.write(piece)
                    await reader.read(65_536)
                while await reader.read(65_536):
                    pass
            writer.close()
            caller = Peer(gateway.endpoint, keys=(ring.client, ring.validator))
            await caller.ping()
            caller.close()
            assert (seen.get_nowait(), seen.empty()) == (b"", True)
        finally:
            gateway.close()

    run(test)


@pytest.mark.parametrize(
    ("asks", "mechanism", "cause"),
    [
        (False, b"CURVE", "it has keys, of which this validator has none"),
        (True, b"NULL", "it has no keys, not this validator's"),
    ],
)
def test_a_handshake_that_fails_is_said_from_the_validators_side(
    ring: Ring, tmp_path: Path, asks: bool, mechanism: bytes, cause: str
) -> None:
    greeting = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x01" + mechanism.ljust(20, b"\0") + bytes(32)

    async def test() -> None:
        ended = asyncio.Event()
        access = read_access_policy(kept(ring, tmp_path)) if asks else OPEN
        gateway = Gateway("tcp://127.0.0.1:*", LIMITS, lambda: None, ended.set, access)
        with structlog.testing.capture_logs() as logs:
            try:
                port = urlsplit(gateway.endpoint).port
                with socket.create_connection(("127.0.0.1", port)) as caller:
                    # A connection that ends before it is counted leaves no trace.
                    while not gateway.connections.count:  # noqa: ASYNC110 (no event tells of it)
                        await asyncio.sleep(0)
                    caller.sendall(greeting)
                    await ended.wait()
            finally:
                gateway.close()
        (told,) = [entry for entry in logs if entry["event"] == "connection refused"]
        assert told["reason"] == f"its handshake failed: {cause}, or speaks no ZMTP"

    run(test)


def test_no_secret_is_logged_or_shown(ring: Ring, tmp_path: Path) -> None:
    async def test() -> None:
        secret = ring.validator.private.read_text().strip()
        with ExitStack() as stack, structlog.testing.capture_logs() as logs:
            async with open_kept(ring, tmp_path) as node:
                client = peer_of(node, ring, ring.client, stack)
                status = await ask(client, Envelope.NODE_STATUS_REQUEST)
                shown = str(NodeStatusResponse.FromString(status.content))
                assert "limits.connections_max" in shown
                for private in (secret, str(ring.validator.private), str(ring.allowed)):
                    assert private not in shown
                assert secret not in repr(read_access_policy(kept(ring, tmp_path)))
        assert secret not in str(logs)

    run(test)


@pytest.mark.parametrize(
    ("bind", "local"),
    [
        ("tcp://127.0.0.1:4004", True),
        ("tcp://127.9.9.9:4004", True),
        ("tcp://[::1]:4004", True),
        ("tcp://localhost:4004", True),
        ("ipc:///tmp/socket", True),
        ("tcp://0.0.0.0:4004", False),
        ("tcp://*:4004", False),
        ("tcp://[::]:4004", False),
        ("tcp://10.0.0.4:4004", False),
        ("tcp://eth0:4004", False),
        ("tcp://localhost.example:4004", False),
        ("ws://127.0.0.1:4004", False),
    ],
)
def test_an_open_door_is_for_loopback(ring: Ring, tmp_path: Path, bind: str, local: bool) -> None:
    assert is_local(bind) == local
    config = ValidatorConfig(tmp_path, tmp_path / "key", bind)
    if local:
        assert read_access_policy(config) == OPEN
    else:
        with pytest.raises(CannotOpen, match=r"cannot listen on .* without keys: .*keygen --connection.*--insecure"):
            read_access_policy(config)
    # --insecure allows any address, and so do keys.
    assert read_access_policy(replace(config, insecure=True)).key is None
    assert read_access_policy(kept(ring, tmp_path, bind)).key is not None


def test_the_gateway_itself_opens_no_other() -> None:
    async def test() -> None:
        with pytest.raises(CannotBind, match=r"cannot listen on tcp://0.0.0.0:4004 without keys"):
            Gateway("tcp://0.0.0.0:4004", LIMITS, lambda: None, lambda: None).close()

    run(test)


def _refusal(config: ValidatorConfig) -> str:
    with pytest.raises(CannotOpen) as caught:
        read_access_policy(config)
    return str(caught.value)


def test_a_door_that_is_half_configured_is_refused_with_what_to_do(ring: Ring, tmp_path: Path) -> None:
    config = kept(ring, tmp_path)
    assert "connection_key is empty" in _refusal(replace(config, connection_key=""))
    assert "allowed_keys is empty, so nobody could connect" in _refusal(replace(config, allowed_keys=""))
    assert "insecure is true and connection_key is" in _refusal(replace(config, insecure=True))
    nowhere = tmp_path / "nowhere"
    assert f"cannot read connection_key {nowhere}: No such file" in _refusal(
        replace(config, connection_key=str(nowhere))
    )
    assert f"{nowhere} holds no key, so nobody could connect" in _refusal(replace(config, allowed_keys=str(nowhere)))
    damaged = ring.allowed / "clients" / "damaged.pub"
    damaged.write_text("nothing\n")
    assert _refusal(config) == f"allowed key {damaged}: it holds no public connection key of 40 Z85 characters"
    damaged.unlink()
    ring.validator.private.chmod(0o644)
    assert "(mode 0644): chmod 600 it" in _refusal(config)


@pytest.mark.parametrize("place", ["", "clients", "clients/client.pub"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_a_list_that_others_could_change_is_refused(ring: Ring, tmp_path: Path, place: str, mode: int) -> None:
    config = kept(ring, tmp_path)
    changed = ring.allowed / place
    before = changed.stat().st_mode & 0o777
    changed.chmod(before | mode)
    refusal = _refusal(config)
    assert f"{changed}: others than its owner may change it" in refusal
    assert f"(mode {before | mode:04o}): chmod go-w it" in refusal
    changed.chmod(before)
    assert len(read_access_policy(config).callers) == 3


@pytest.mark.parametrize("place", ["", "processors", "processors/both.pub"])
def test_a_list_that_belongs_to_another_user_is_refused(
    ring: Ring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    theirs, mine, check = ring.allowed / place, os.geteuid(), changeable_by_others
    inode = theirs.stat().st_ino

    def check_as_if(mode: int, owner: int, reader: int) -> str | None:
        return check(mode, 4_321 if looked_at == inode else owner, reader)

    look, looked_at = access_module._refuse_changeable, 0

    def refuse_changeable(named: str, at: Path | int) -> None:
        nonlocal looked_at
        looked_at = os.stat(at).st_ino
        look(named, at)

    monkeypatch.setattr(access_module, "changeable_by_others", check_as_if)
    monkeypatch.setattr(access_module, "_refuse_changeable", refuse_changeable)
    assert f"{theirs}: it belongs to user 4321, who may change it: chown it to user {mine}" in _refusal(
        kept(ring, tmp_path)
    )


def test_a_list_on_a_read_only_file_system_cannot_be_changed_whatever_its_modes_say(
    ring: Ring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring.allowed.chmod(0o1777)
    found = os.statvfs(ring.allowed)
    read_only = os.statvfs_result((*found[:8], found.f_flag | os.ST_RDONLY, found.f_namemax))
    monkeypatch.setattr(os, "statvfs", lambda _: read_only)
    assert len(read_access_policy(kept(ring, tmp_path)).callers) == 3


def test_what_is_no_regular_file_is_refused_by_name_and_not_waited_for(ring: Ring, tmp_path: Path) -> None:
    config, odd = kept(ring, tmp_path), ring.allowed / "clients" / "odd.pub"
    refused = f"allowed key {odd}: it is no regular file"
    os.mkfifo(odd)
    assert refused in _refusal(config)
    odd.unlink()
    odd.symlink_to("/dev/zero")
    assert refused in _refusal(config)
    odd.unlink()
    odd.mkdir()
    assert refused in _refusal(config)
    odd.rmdir()
    odd.symlink_to(tmp_path / "nowhere")
    assert f"cannot read the allowed key {odd}: No such file or directory" in _refusal(config)
    odd.unlink()
    odd.symlink_to(ring.stranger.public)
    assert read_access_policy(config).callers[ConnectionPublicKey(ring.stranger.public_key)].name == "odd"


@pytest.mark.parametrize("name", [b"caf\xe9.pub", b"two\nlines.pub"])
def test_a_name_that_no_log_line_can_hold_is_refused(ring: Ring, tmp_path: Path, name: bytes) -> None:
    config = kept(ring, tmp_path)
    ring.client.public.rename(ring.allowed / "clients" / os.fsdecode(name))
    refusal = _refusal(config)
    assert refusal.isprintable()
    assert f"allowed key {os.fsdecode(name)!a} in {ring.allowed / 'clients'}: " in refusal
    assert refusal.endswith("cannot be printed; rename it")


def test_the_list_is_read_with_names_and_rights(ring: Ring, tmp_path: Path) -> None:
    (ring.allowed / "clients" / "README").write_text("no key, and not asked for one")
    callers = read_access_policy(kept(ring, tmp_path)).callers
    assert {caller.name: caller.rights for caller in callers.values()} == {
        "processor": {Right.PROCESSOR},
        "client": {Right.CLIENT},
        "both": {Right.PROCESSOR, Right.CLIENT},
    }
    assert ring.stranger.public_key not in callers


def test_each_message_asks_for_one_right() -> None:
    """Every message type that does not belong to processors belongs to clients."""
    processors = {
        name for name, number in Envelope.MessageType.items() if right_for(number) is Right.PROCESSOR
    }  # fmt: skip
    assert processors == {
        "TP_REGISTER_REQUEST", "TP_UNREGISTER_REQUEST", "TP_PROCESS_RESPONSE", "PACKED_PROCESS_RESPONSE",
        "TP_STATE_GET_REQUEST", "TP_STATE_SET_REQUEST", "TP_STATE_DELETE_REQUEST", "TP_RECEIPT_ADD_DATA_REQUEST",
        "TP_EVENT_ADD_REQUEST", "STATE_LIST_REQUEST",
    }  # fmt: skip
    everybodys = {name for name, number in Envelope.MessageType.items() if right_for(number) is None}
    assert everybodys == {"PING_REQUEST", "PING_RESPONSE"}
    assert right_for(77_777) is Right.CLIENT


# Connections


@asynccontextmanager
async def bounded_port(limits: Limits) -> AsyncIterator[tuple[OpenPort, ExitStack]]:
    port = OpenPort(limits)
    with ExitStack() as stack:
        try:
            yield port, stack
        finally:
            stack.close()
            port.gateway.close()


def silent(port: OpenPort, stack: ExitStack, sent: bytes = b"") -> socket.socket:
    """A connection that sends ``sent`` and nothing more."""
    address = urlsplit(port.gateway.endpoint)
    assert address.hostname
    assert address.port
    opened = stack.enter_context(socket.create_connection((address.hostname, address.port)))
    opened.sendall(sent)
    return opened


async def until_count(port: OpenPort, count: int) -> None:
    while port.gateway.connections.count != count:  # noqa: ASYNC110 (no event tells of it)
        await asyncio.sleep(0)


async def ended(opened: socket.socket) -> None:
    """Return when the other side has closed the connection."""
    opened.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        while await loop.sock_recv(opened, 4_096):
            pass
    except ConnectionError:
        pass


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (replace(LIMITS, connections_max=5), "6 connections are open, at most 5 are allowed"),
        (
            replace(LIMITS, address_connections_max=5),
            "6 connections of 127.0.0.1 are open, at most 5 of one address are allowed",
        ),
    ],
)
def test_connections_beyond_the_limit_are_cut_and_the_others_stay(limits: Limits, reason: str) -> None:
    async def test() -> None:
        async with bounded_port(limits) as (port, stack):
            peer = Peer(port.gateway.endpoint)
            stack.callback(peer.close)
            await peer.ping()
            held = [silent(port, stack) for _ in range(4)]
            await until_count(port, 5)
            with structlog.testing.capture_logs() as logs:
                await ended(silent(port, stack))
                await until_count(port, 5)
            (refused,) = [entry for entry in logs if entry["event"] == "connection refused"]
            assert (refused["address"], refused["reason"]) == ("127.0.0.1", reason)
            await peer.ping("meanwhile")
            # A closed connection makes room for another.
            held.pop().close()
            await until_count(port, 4)
            other = Peer(port.gateway.endpoint)
            stack.callback(other.close)
            await other.ping()
            await until_count(port, 5)

    run(test)


def test_hundreds_of_half_open_connections_cost_nobody_their_own() -> None:
    async def test() -> None:
        limits = replace(LIMITS, connections_max=100, address_connections_max=100)
        async with bounded_port(limits) as (port, stack):
            peer = Peer(port.gateway.endpoint)
            stack.callback(peer.close)
            await peer.ping()
            for number in range(400):
                silent(port, stack, b"\xff" + bytes(8) if number % 2 else b"")
                if number % 50 == 0:
                    await peer.ping(str(number))
            await until_count(port, 100)
            await peer.ping("afterwards")

    run(test)


def test_who_is_not_let_in_in_time_is_cut() -> None:
    async def test() -> None:
        async with bounded_port(replace(LIMITS, handshake_ms_max=50)) as (port, stack):
            peer = Peer(port.gateway.endpoint)
            stack.callback(peer.close)
            await peer.ping()
            # The peers send nothing, half a greeting, or a complete greeting and no more.
            greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
            for sent in (b"", greeting[:11], greeting):
                await ended(silent(port, stack, sent))
            await until_count(port, 1)
            await peer.ping("afterwards")

    run(test)


def test_a_descriptor_that_is_anothers_by_now_is_left_alone() -> None:
    counted = connections.Connections(replace(LIMITS, connections_max=0))
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as listening:
        counted.set_endpoint(f"tcp://127.0.0.1:{listening.getsockname()[1]}")
        with socket.create_connection(server.getsockname()) as stranger, server.accept()[0] as accepted:
            counted._accepted(accepted.fileno())
            assert counted.count == 0
            accepted.sendall(b"still open")
            assert stranger.recv(100) == b"still open"
        with socket.create_connection(listening.getsockname()) as cut, listening.accept()[0] as ours:
            counted._accepted(ours.fileno())
            assert counted.count == 1
            assert cut.recv(100) == b""


def test_a_log_line_a_second_tells_of_those_left_out() -> None:
    clock_s = 100.0
    warning = connections.ThrottledWarning("refused", lambda: clock_s)
    with structlog.testing.capture_logs() as logs:
        for clock_s, number in ((100.0, 1), (100.5, 2), (100.9, 3), (101.0, 4), (101.5, 5), (132.0, 6)):  # noqa: B007
            warning.warn(number=number)
    told = [(entry["number"], entry.get("unsaid"), entry.get("unsaid_s_ago")) for entry in logs]
    assert told == [(1, None, None), (4, 2, 0.1), (6, 1, 30.5)]
