"""A processor with a connection key at a real ROUTER that asks for keys, and its log when the handshake fails."""

import contextlib
import logging
import queue
import re
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zmq
from zmq.auth.thread import ThreadAuthenticator

from dovetail.common.keys import KeyFiles
from processor_sdk.runtime import TransactionProcessor
from processor_sdk.worker.keys import read_keys
from tests.keys import Ring, make_ring
from tests.processor_sdk.router import WAIT_MS, Validator
from tests.processor_sdk.scripts import ScriptHandler


@pytest.fixture
def ring(tmp_path: Path) -> Ring:
    return make_ring(tmp_path)


@pytest.fixture
def said(request: pytest.FixtureRequest) -> Iterator["queue.Queue[str]"]:
    """The connection's log lines so far."""
    lines: queue.Queue[str] = queue.Queue()

    class Taker(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.put(record.getMessage())

    logger = logging.getLogger("processor_sdk.worker.connection")
    taker, before = Taker(), logger.level
    logger.addHandler(taker)
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(taker)
    logger.setLevel(before)


def wait_said(said: "queue.Queue[str]", pattern: str) -> str:
    """Wait for a line among all others, because a refused processor keeps logging."""
    until = time.monotonic() + WAIT_MS / 1000
    while not re.search(pattern, line := said.get(timeout=max(0, until - time.monotonic()))):
        pass
    return line


@contextlib.contextmanager
def running(url: str, own: KeyFiles | None, server: KeyFiles | None) -> Iterator[TransactionProcessor]:
    keys: dict[str, Any] = {}
    if own and server:
        keys = {"connection_key": own.private, "validator_key": server.public}
    processor = TransactionProcessor(url, **keys).add(ScriptHandler())
    thread = threading.Thread(target=processor.run_in_process)
    thread.start()
    try:
        yield processor
    finally:
        processor.stop()
        thread.join(WAIT_MS / 1000)
        assert not thread.is_alive()


@dataclass
class Listed:
    """The allowed keys, for the library's authenticator."""

    keys: set[str]

    def callback(self, domain: str, key: bytes) -> bool:
        return key.decode() in self.keys


@contextlib.contextmanager
def kept(server: KeyFiles, listed: Listed) -> Iterator[Validator]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    authenticator = ThreadAuthenticator(context)
    authenticator.start()
    authenticator.configure_curve_callback(domain="*", credentials_provider=listed)
    validator = Validator(context=context, keys=server)
    try:
        yield validator
    finally:
        authenticator.stop()
        validator.close()


def test_a_processor_shows_its_key_and_registers(ring: Ring, said: "queue.Queue[str]") -> None:
    with (
        kept(ring.validator, Listed({ring.processor.public_key})) as validator,
        running(validator.url, ring.processor, ring.validator) as processor,
    ):
        assert validator.accept().family == ScriptHandler.family_name
        assert wait_said(said, "connected to the validator")
        processor.stop()
        validator.release()


def test_a_refused_key_is_logged_and_tried_until_it_is_accepted(ring: Ring, said: "queue.Queue[str]") -> None:
    listed = Listed(set())
    with kept(ring.validator, listed) as validator, running(validator.url, ring.processor, ring.validator) as processor:
        key = ring.processor.public_key
        for _ in range(2):
            told = wait_said(said, "^lost the validator")
            assert f"the validator refused this key: {key} must be in its allowed_keys, under processors" in told
        listed.keys.add(key)
        assert validator.accept().family == ScriptHandler.family_name
        processor.stop()
        validator.release()


def test_the_wrong_key_of_a_validator_is_said(ring: Ring, said: "queue.Queue[str]") -> None:
    with (
        kept(ring.validator, Listed({ring.processor.public_key})) as validator,
        running(validator.url, ring.processor, ring.stranger),
    ):
        told = wait_said(said, "^lost the validator")
        assert "its public key is not that in " in told


@pytest.mark.parametrize("mended", ["validator_key", "connection_key"])
def test_a_corrected_key_file_is_read_again(ring: Ring, tmp_path: Path, said: "queue.Queue[str]", mended: str) -> None:
    own = ring.processor._replace(private=tmp_path / "own.priv")
    server = ring.validator._replace(public=tmp_path / "server.pub")
    shutil.copy(ring.processor.private, own.private)
    shutil.copy(ring.validator.public, server.public)
    file, wrong = (
        (server.public, ring.stranger.public) if mended == "validator_key" else (own.private, ring.stranger.private)
    )
    right = file.read_bytes()
    file.write_bytes(wrong.read_bytes())
    with (
        kept(ring.validator, Listed({ring.processor.public_key})) as validator,
        running(validator.url, own, server) as processor,
    ):
        wait_said(said, "^lost the validator")
        file.write_text("half a key")
        fault = wait_said(said, "connecting with the keys from before$")
        assert fault.startswith(f"{mended} {file}: it holds no ")
        file.write_bytes(right)
        assert validator.accept().family == ScriptHandler.family_name
        processor.stop()
        validator.release()


def test_a_processor_without_a_key_is_told_that_it_needs_one(ring: Ring, said: "queue.Queue[str]") -> None:
    with kept(ring.validator, Listed(set())) as validator, running(validator.url, None, None):
        assert "perhaps it asks for keys, of which this processor has none" in wait_said(said, "^lost the validator")


def test_the_log_tells_a_validator_without_keys_from_one_with_others(ring: Ring, said: "queue.Queue[str]") -> None:
    validator = Validator()
    try:
        with running(validator.url, ring.processor, ring.validator):
            assert "the handshake failed; perhaps it has no keys" in wait_said(said, "^lost the validator")
    finally:
        validator.close()


def test_keys_are_read_before_anything_starts(ring: Ring) -> None:
    url = "tcp://127.0.0.1:4004"
    with pytest.raises(ValueError, match=r"^connection_key and validator_key: give both, or neither$"):
        TransactionProcessor(url, connection_key=ring.processor.private)
    nowhere = ring.allowed / "nowhere"
    with pytest.raises(ValueError, match=r"^cannot read connection_key .*nowhere: No such file or directory$"):
        TransactionProcessor(url, connection_key=nowhere, validator_key=ring.validator.public)
    with pytest.raises(ValueError, match=r"^cannot read validator_key .*allowed: Is a directory$"):
        TransactionProcessor(url, connection_key=ring.processor.private, validator_key=ring.allowed)
    ring.stranger.public.write_text("none")
    with pytest.raises(ValueError, match=r"^validator_key .*stranger\.pub: it holds no public connection key"):
        TransactionProcessor(url, connection_key=ring.processor.private, validator_key=ring.stranger.public)
    ring.processor.private.chmod(0o640)
    with pytest.raises(
        ValueError, match=r"^connection_key .*processor\.priv: others than .*mode 0640\): chmod 600 it$"
    ):
        TransactionProcessor(url, connection_key=ring.processor.private, validator_key=ring.validator.public)


def test_keys_show_no_secret(ring: Ring) -> None:
    keys = read_keys(ring.processor.private, ring.validator.public)
    assert keys.public == ring.processor.public_key
    assert ring.processor.private.read_text().strip() not in repr(keys)
