"""The REST API and a validator that requires connection keys."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
import zmq
from zmq.auth.asyncio import AsyncioAuthenticator

from dovetail.rest_api.config import RestConfig
from dovetail.rest_api.upstream import validator as connection
from dovetail.rest_api.upstream.keys import read_keys
from dovetail.rest_api.upstream.validator import ValidatorConnection
from protos.node_pb2 import NotAllowed
from tests.dovetail.rest_api.support import Type, error_of, logged, run, running_api
from tests.keys import Ring, make_ring, use_server_key


@pytest.fixture
def ring(tmp_path: Path) -> Ring:
    return make_ring(tmp_path)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the API reconnect almost at once."""
    monkeypatch.setattr(connection, "RECONNECT_MS_MAX", 20)


class Listed:
    """The accepted keys, as the library's authenticator asks for them."""

    def __init__(self, *keys: str) -> None:
        self.keys = set(keys)
        self.asked: asyncio.Queue[bytes] = asyncio.Queue()

    def callback(self, domain: str, key: bytes) -> bool:
        self.asked.put_nowait(key)
        return key.decode() in self.keys


@asynccontextmanager
async def listening(ring: Ring | None, listed: Listed) -> AsyncIterator[str]:
    """A socket that accepts the listed keys.

    Without ``ring``, it accepts every client without a key. Yields its address.
    """
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    authenticator = AsyncioAuthenticator(context)
    authenticator.start()
    authenticator.configure_curve_callback(domain="*", credentials_provider=listed)
    router = context.socket(zmq.ROUTER)
    if ring is not None:
        use_server_key(router, ring.validator)
    router.bind("tcp://127.0.0.1:*")
    try:
        yield router.get_string(zmq.LAST_ENDPOINT).rstrip("\0")
    finally:
        authenticator.stop()
        router.close(0)
        context.term()


def write(file: Path, content: bytes) -> None:
    """Replace the file at once, because it may be read at any moment."""
    beside = file.with_suffix(".new")
    beside.write_bytes(content)
    beside.chmod(0o600)
    beside.rename(file)


def config_of(ring: Ring, address: str) -> RestConfig:
    return RestConfig(
        validator=address, validator_key=str(ring.validator.public), connection_key=str(ring.client.private)
    )


def test_a_listed_key_connects(ring: Ring) -> None:
    async def test() -> None:
        async with listening(ring, Listed(ring.client.public_key)) as address:
            validator = ValidatorConnection(config_of(ring, address))
            validator.open()
            try:
                await validator.wait_connected()
            finally:
                validator.close()

    run(test())


def test_a_refused_key_is_logged_once_and_tried_until_it_is_accepted(ring: Ring) -> None:
    async def test() -> None:
        listed = Listed()
        async with listening(ring, listed) as address:
            validator = ValidatorConnection(config_of(ring, address))
            with structlog.testing.capture_logs() as logs:
                validator.open()
                try:
                    await logged(logs, "not let in by the validator")
                    for _ in range(2):
                        await listed.asked.get()
                    assert not validator.connected
                    listed.keys.add(ring.client.public_key)
                    await validator.wait_connected()
                finally:
                    validator.close()
            (entry,) = [entry for entry in logs if entry["event"] == "not let in by the validator"]
            key = ring.client.public_key
            assert entry["reason"] == f"it refused this key: {key} must be in its allowed_keys, under clients"
            assert not [entry for entry in logs if entry["event"] == "lost the validator"]

    run(test())


@pytest.mark.parametrize(
    ("asks", "own", "reason"),
    [
        (True, True, "its public key is not "),
        (True, False, "it asks for keys, of which this REST API has none"),
        (False, True, "the handshake failed; perhaps it has no keys"),
    ],
)
def test_a_failed_handshake_is_logged_with_its_likely_reason(ring: Ring, asks: bool, own: bool, reason: str) -> None:
    async def test() -> None:
        async with listening(ring if asks else None, Listed(ring.client.public_key)) as address:
            config = replace(config_of(ring, address), validator_key=str(ring.stranger.public))
            validator = ValidatorConnection(config if own else RestConfig(validator=address))
            with structlog.testing.capture_logs() as logs:
                validator.open()
                try:
                    await logged(logs, "not let in by the validator")
                finally:
                    validator.close()
            assert reason in next(entry["reason"] for entry in logs if "reason" in entry)

    run(test())


@pytest.mark.parametrize("mended", ["validator_key", "connection_key"])
def test_a_corrected_key_file_is_read_again(ring: Ring, tmp_path: Path, mended: str) -> None:
    wrong = {"validator_key": ring.stranger.public, "connection_key": ring.stranger.private}[mended]
    files = {"validator_key": ring.validator.public, "connection_key": ring.client.private}
    right = files[mended].read_bytes()
    file = files[mended] = Path(shutil.copy(wrong, tmp_path / f"used{wrong.suffix}"))

    async def test() -> None:
        async with listening(ring, Listed(ring.client.public_key)) as address:
            server, own = (str(files[setting]) for setting in ("validator_key", "connection_key"))
            validator = ValidatorConnection(RestConfig(validator=address, validator_key=server, connection_key=own))
            with structlog.testing.capture_logs() as logs:
                validator.open()
                try:
                    await logged(logs, "not let in by the validator")
                    write(file, b"half a key")
                    await logged(logs, "a connection key cannot be read, the one from before is used")
                    write(file, right)
                    await validator.wait_connected()
                finally:
                    validator.close()
        (entry,) = [entry for entry in logs if entry["event"].startswith("a connection key cannot be read")]
        assert entry["reason"].startswith(f"{mended} {file}: it holds no ")

    run(test())


def test_a_key_without_permission_is_named_in_each_answer_and_logged_once() -> None:
    async def test() -> None:
        reason = "NODE_STATUS_REQUEST is refused: the key is listed under processors"
        refusal = NotAllowed(message=reason)
        asked = (Type.NODE_STATUS_REQUEST, Type.CLIENT_BATCH_SUBMIT_REQUEST, Type.LIST_REQUEST)
        with structlog.testing.capture_logs() as logs:
            async with running_api() as api:
                for message_type in asked:
                    api.validator.answer(message_type, Type.NOT_ALLOWED, refusal)
                octets = {"content-type": "application/octet-stream"}
                answers = [
                    await api.http.get("/readyz"),
                    await api.http.get("/blocks"),
                    await api.http.post("/batches", content=b"batches", headers=octets),
                ]
        for answer in answers:
            assert error_of(answer) == (503, 15, f"the validator does not serve this REST API: {reason}")
        (entry,) = [entry for entry in logs if entry["event"] == "not served by the validator"]
        assert (entry["log_level"], entry["reason"]) == ("error", reason)

    run(test())


def test_unreadable_keys_are_a_wrong_setting(ring: Ring) -> None:
    async def test() -> None:
        ring.client.private.chmod(0o604)
        validator = ValidatorConnection(config_of(ring, "tcp://127.0.0.1:4004"))
        with pytest.raises(ValueError, match=r"^connection_key .*client\.priv: others .*mode 0604\): chmod 600 it$"):
            validator.open()

    run(test())
    with pytest.raises(ValueError, match=r"^validator_key and connection_key: set both, or neither$"):
        RestConfig(connection_key="one")
    ring.client.private.chmod(0o600)
    keys = read_keys(ring.client.private, ring.validator.public)
    assert (keys.public, keys.validator) == (ring.client.public_key, ring.validator.public_key)
    assert ring.client.private.read_text().strip() not in repr(keys)
