"""Rows on the validator behind the API: not ready, lost, silent, shared; and on batches of other families."""

import base64
import json
import signal
from typing import Final

from tests.conformance.nodes import Nodes, Surrounded, surrounded
from tests.conformance.rules_answers import LISTS, NODE
from tests.conformance.table import error
from tests.conformance.wire import Request
from tests.conformance.world import JSON, OCTETS, UNKNOWN_ID, World
from tests.system.e2e.clients import Author
from tests.system.e2e.network import INTKEY, ReservedPort
from tests.system.e2e.script_family import HANDLER, NAMESPACE, script
from tests.system.independent import client as ledger
from tests.system.independent import protobuf_wire as wire

PATHS: Final = (
    *LISTS, f"/blocks/{UNKNOWN_ID}", "/blocks/0", f"/batches/{UNKNOWN_ID}", f"/transactions/{UNKNOWN_ID}",
    "/state/" + "0" * 70, "/state/00", f"/batch_status?id={UNKNOWN_ID}", f"/batch_status?id={UNKNOWN_ID}&wait",
)  # fmt: skip
"""Every route that asks the validator for the chain, then the four routes about the node."""

ROWS: list[Surrounded] = []


@surrounded(ROWS, "api/status/invalid/dependency-missing", "a batch waits PENDING for a missing dependency, then fails")
def _(nodes: Nodes) -> None:
    world = nodes.up(LIMITS_DEPENDENCY_WAIT_MS="300")
    batch, release = world.held()
    content = world.reject(batch)
    assert content["data"] == {batch.id: "INVALID"}
    details = content["details"][batch.id]
    assert details["reason"] == "dependency_missing"
    assert release.transactions[0].id in details["message"]


@surrounded(ROWS, "api/status/invalid/family", "a family that is not permitted makes the batch INVALID, with its names")
def _(nodes: Nodes) -> None:
    world = nodes.up()
    network = nodes.networks[-1]
    permitted = json.dumps([{"family": name, "version": "1.0"} for name in ("intkey", "sawtooth_settings")])
    network.call("settings", "propose", "sawtooth.validator.transaction_families", permitted, "--wait", "30")
    family = world.family()
    batch = world.batch(world.orphan(family))
    details = world.reject(batch)["details"][batch.id]
    assert details["reason"] == "family_not_permitted"
    assert details["transaction_id"] == batch.transactions[0].id
    assert (details["family_name"], details["family_version"]) == (family, "1.0")
    world.commit(world.new())


def _with_script(nodes: Nodes) -> World:
    """The shared node, with a processor of the script family."""
    network, world = nodes.shared_up()
    if all(process.name != "ScriptHandler" for process in network.processes):
        network.processor(HANDLER).wait_logged("ready")
    return world


def _script(world: World, *steps: tuple[object, ...]) -> ledger.Transaction:
    return ledger.make_transaction(
        world.key, world.public_key, "e2e_script", "1.0", [NAMESPACE], [NAMESPACE], script(*steps)
    )


@surrounded(
    ROWS, "api/status/pending/executing", "PENDING has reason queued, or executing while the family applies the batch"
)
def _(nodes: Nodes) -> None:
    world = _with_script(nodes)
    first = world.batch(_script(world, ("hold", nodes.gate.port)))
    world.accept(first)
    nodes.gate.wait()
    assert world.status(first.id) == {"data": {first.id: "PENDING"}, "details": {first.id: {"reason": "executing"}}}
    # The second batch declares the addresses of the first, so it runs after the first.
    second = world.batch(_script(world))
    world.accept(second)
    assert world.status(second.id)["details"][second.id]["reason"] in ("queued", "executing")
    nodes.gate.open()
    assert world.words(first, second, query="?wait=50") == ["COMMITTED"] * 2


@surrounded(ROWS, "api/status/invalid/extended-data", "message and extended_data are the processor's, in base64")
def _(nodes: Nodes) -> None:
    world = _with_script(nodes)
    batch = world.batch(world.intkey("set", world.name(), 1), _script(world, ("invalid", "no, thanks", "00ff10")))
    assert world.reject(batch)["details"] == {batch.id: {
        "reason": "invalid_transaction", "transaction_id": batch.transactions[1].id, "message": "no, thanks",
        "extended_data": base64.b64encode(b"\x00\xff\x10").decode(),
    }}  # fmt: skip
    # Specification, What the service does, 5: families share a batch, and commit together.
    world.commit(world.batch(world.intkey("set", world.name(), 1), _script(world)))


def _each_says(world: World, code: int, paths: tuple[str, ...]) -> None:
    for path in paths:
        error(code)(world.http.get(path), world)
        headed = world.http.ask(Request("HEAD", path))
        assert (headed.status, headed.body) == (503, b"")
    error(code)(world.post(world.new()), world)
    error(code)(world.post(world.new(), query="?wait=5"), world)
    content = f'["{UNKNOWN_ID}"]'.encode()
    error(code)(world.http.ask(Request("POST", "/batch_status", (JSON,), content)), world)
    assert world.http.get("/").status == 200
    assert world.http.get("/openapi.json").status == 200
    assert world.http.get("/healthz").status == 200
    assert world.http.get("/readyz").status == 503
    assert world.http.ask(Request("OPTIONS", "/blocks")).status in (200, 204)
    error(53)(world.http.get("/blocks?count=0"), world)


@surrounded(ROWS, "api/errors/15", "before the genesis block the chain's routes answer 503 with code 15")
def _(nodes: Nodes) -> None:
    network = nodes.network()
    assert network.run("genesis", "--data-dir", str(network.data)).code == 0
    author = Author("before genesis")
    with (network.data / "genesis.batch").open("ab") as file:
        # Block 0 waits for a processor of this second batch.
        second = author.batch(author.intkey("set", "genesis", 1))
        file.write(wire.encode(wire.repeated(1, [second.to_bytes()])))
    validator = network.validator()
    network.rest_api().wait_logged("ready")
    world = nodes.world(network.rest_url)
    for path in (*LISTS, "/blocks/0", f"/batches/{'ab' * 64}", f"/transactions/{'ab' * 64}", f"/state/{'ab' * 35}"):
        error(15, "genesis")(world.http.get(path), world)
    error(15, "genesis")(world.post(world.new()), world)
    assert world.http.get("/healthz").status == 200
    assert world.http.get("/readyz").status == 503
    network.processor(INTKEY)
    validator.wait_logged("ready")
    world.commit(world.new())
    assert world.http.get("/readyz").status == 200


@surrounded(ROWS, "api/errors/18", "without the validator every route answers 503; the API reconnects by itself")
def _(nodes: Nodes) -> None:
    network = nodes.network()
    parts = network.parts(INTKEY)
    world = nodes.world(network.rest_url)
    world.commit(world.new())
    batch, bad = world.waiting(), world.bad()
    world.accept(batch)
    details = world.reject(bad)["details"]
    with world.http.raw() as held:
        held.send("GET", f"/batch_status?id={batch.id}&wait=50")
        world.http.get("/")
        assert held.is_silent()
        parts["validator"].kill()
        parts["rest-api"].wait_logged("lost the validator")
        error(18)(held.answer(), world)
    _each_says(world, 18, (*PATHS, *NODE))
    seen = len(parts["rest-api"].lines)
    network.validator("validator again").wait_logged("ready")
    parts["rest-api"].wait_logged("connected to the validator", after=seen)
    # API.md, Batches and their status: an accepted batch is on disk; INVALID is remembered across a restart.
    content = world.status(batch.id, bad.id)
    assert content["data"] == {batch.id: "PENDING", bad.id: "INVALID"}
    assert content["details"][bad.id] == details[bad.id]
    world.commit(world.new())


@surrounded(ROWS, "api/errors/17", "a silent validator gives 503 with code 17 after the API's timeout")
def _(nodes: Nodes) -> None:
    network = nodes.network(REST_API_TIMEOUT_S="1")
    parts = network.parts(INTKEY)
    world = nodes.world(network.rest_url)
    parts["validator"].signal(signal.SIGSTOP)
    try:
        error(17, "1 second")(world.http.get("/blocks"), world)
    finally:
        parts["validator"].signal(signal.SIGCONT)
    # The API may have closed its connection to the silent validator. Then the API connects again.
    assert world.http.get("/").status == 200


@surrounded(ROWS, "api/every/request-id-logged", "the log lines of both processes have the request id")
def _(nodes: Nodes) -> None:
    network, world = nodes.shared_up()
    up = network.processes[0]
    for path in ("/blocks", "/nothing/blocks"):
        request_id = f"logged-{world.name()}"
        world.http.get(path, ("X-Request-Id", request_id))
        up.wait_logged("request", request_id=request_id)
    request_id = f"logged-{world.name()}"
    body = ledger.make_batch_list([world.new()])
    answer = world.http.ask(Request("POST", "/batches", (OCTETS, ("X-Request-Id", request_id)), body))
    assert answer.status == 202
    up.wait_logged("request", request_id=request_id)
    up.wait_for_line(f'"correlation_id": ?"{request_id}')


@surrounded(ROWS, "issue/stateless", "the API holds no state: two APIs of one validator give the same answers")
def _(nodes: Nodes) -> None:
    network, world = nodes.shared_up()
    port = ReservedPort()
    words = ("rest-api", "--bind", f"127.0.0.1:{port.number}", "--validator", network.validator_url)
    second_api = network.start(*words, name="second rest-api")
    try:
        second_api.wait_logged("ready")
        other = nodes.world(f"http://127.0.0.1:{port.number}")
        batch, release = world.held()
        world.accept(batch)
        with other.http.raw() as raw:
            raw.send("GET", f"/batch_status?id={batch.id}&wait=50")
            other.http.get("/")
            assert raw.is_silent()
            world.commit(release)
            assert raw.answer().json["data"] == {batch.id: "COMMITTED"}
        for path in ("/blocks", f"/batches/{batch.id}", f"/batch_status?id={batch.id}"):
            first, second = world.http.get(path), other.http.get(path)
            assert second.body.decode().replace(other.http.url, world.http.url) == first.body.decode()
    finally:
        second_api.terminate()
        port.close()
