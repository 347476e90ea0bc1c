"""Rows on what the node reports about itself: /stats, /status, the root, the documentation, health and metrics."""

from datetime import datetime
from functools import partial
from typing import Any, Final

from tests.conformance.rules_answers import ROUTES
from tests.conformance.table import Row, get, link, members, row, rule, status
from tests.conformance.wire import Answer
from tests.conformance.world import World

TOTALS: Final = {
    "blocks": {"committed", "rolledback", "claimed"},
    "batches": {"committed", "rolledback", "invalid"},
    "transactions": {"committed", "rolledback", "invalid"},
}
TRAFFIC: Final = {"packets": {"received", "sent", "dropped", "duplicate"}, "bytes": {"received", "sent", "dropped"}}
ROWS: list[Row] = [
    row(f"api/node{path}/members", "data and link", get(f"{path}?x=1"), members("data", "link"), link(f"{path}?x=1"))
    for path in ("/stats/validator", "/stats/gossip", "/status/config", "/status/processors", "/status/system")
]


ROWS.append(
    row("api/node/status/families/members", "data, head and link", get("/status/families?x=1"),
        members("data", "head", "link"), link("/status/families?x=1"))
)  # fmt: skip


def _is_time(text: str) -> None:
    assert datetime.fromisoformat(text).tzinfo is not None
    assert "T" in text


def _has_totals(data: Any) -> None:
    for name, wanted in TOTALS.items():
        assert set(data[name]) == wanted
        assert all(isinstance(value, int) and value >= 0 for value in data[name].values())
    assert isinstance(data["rollbacks"], int)


def _stats(world: World) -> Any:
    return world.http.get("/stats/validator").json["data"]


@rule(ROWS, "api/stats/validator", "totals of blocks, batches, transactions and rollbacks, and the time")
def _(world: World) -> None:
    data = _stats(world)
    _is_time(data["timestamp"])
    _has_totals(data)


@rule(ROWS, "api/stats/validator/families", "one object of the same shape for each family_name:family_version")
def _(world: World) -> None:
    world.commit(world.new())
    data = _stats(world)
    _has_totals(data["intkey:1.0"])
    for name, value in data.items():
        if name not in (*TOTALS, "timestamp", "rollbacks"):
            assert ":" in name
            _has_totals(value)


@rule(ROWS, "api/stats/validator/grows", "committed and INVALID batches are counted, in total and by family")
def _(world: World) -> None:
    before = _stats(world)
    world.commit(world.batch(world.intkey("set", world.name(), 1), world.intkey("set", world.name(), 1)))
    world.reject(world.bad())
    after = _stats(world)
    for data, older in ((after, before), (after["intkey:1.0"], before["intkey:1.0"])):
        assert data["batches"]["committed"] >= older["batches"]["committed"] + 1
        assert data["batches"]["invalid"] >= older["batches"]["invalid"] + 1
        assert data["transactions"]["committed"] >= older["transactions"]["committed"] + 2
        assert data["transactions"]["invalid"] >= older["transactions"]["invalid"] + 1
        assert data["blocks"]["committed"] >= older["blocks"]["committed"] + 1


@rule(ROWS, "api/stats/gossip", "packets, bytes, messages_handled and peer_count; one object for each peer")
def _(world: World) -> None:
    data = world.http.get("/stats/gossip").json["data"]
    _is_time(data["timestamp"])
    assert isinstance(data["peer_count"], int)
    peers = {name: value for name, value in data.items()
             if name not in (*TRAFFIC, "timestamp", "peer_count", "messages_handled")}  # fmt: skip
    assert len(peers) == data["peer_count"]
    for shape in (data, *peers.values()):
        for name, wanted in TRAFFIC.items():
            assert set(shape[name]) == wanted
            assert all(isinstance(value, int) for value in shape[name].values())
        assert isinstance(shape["messages_handled"], int)
    if not peers:
        assert not any(value for name in TRAFFIC for value in data[name].values())
        assert data["messages_handled"] == 0


def _config(answer: Answer, _: World) -> None:
    data = answer.json["data"]
    assert {"max_transactions_per_block", "min_transactions_per_block"} <= set(data)
    assert 0 <= data["min_transactions_per_block"] <= data["max_transactions_per_block"]
    text = answer.body.decode()
    # Limits are configurable and visible here.
    for name in ("body_bytes_max", "pending_batches_max", "page_items_max", "timeout_s", "trusted_proxies"):
        assert f'"{name}"' in text, name
    for secret in ("key_file", "data_dir", "private"):
        assert secret not in text


def _system(answer: Answer, _: World) -> None:
    data = answer.json["data"]
    _is_time(data["local_time"])
    for name in ("percent_cpu", "percent_memory"):
        assert 0 <= data[name] <= 1
    assert data["percent_memory"] > 0
    for name in ("network_rx", "network_tx"):
        assert isinstance(data[name], int)
        assert data[name] >= 0


def _families(answer: Answer, _: World) -> None:
    data = answer.json["data"]
    assert set(data) == {"head_num", "restricted", "timestamp", "families"}
    _is_time(data["timestamp"])
    names = [(family["family_name"], family["family_version"]) for family in data["families"]]
    assert names == sorted(names)
    for family in data["families"]:
        assert family["permission"] in ("permitted", "waiting", "ended", "not_permitted")
        assert data["restricted"] or family["permission"] == "permitted"
        assert family["migrating_processors"] <= family["processors"]
    assert ("intkey", "1.0") in names


def _processors(answer: Answer, _: World) -> None:
    for entry in answer.json["data"]:
        assert entry["state"] in ("takes_work", "draining", "silent", "stuck")
        assert entry["families"]
        for family in entry["families"]:
            assert set(family) == {"family_name", "family_version", "build_id", "migrates", "namespaces", "idle"}
        assert set(entry["in_flight"]) == {"tasks", "transactions"}
        for name in ("packed_version", "max_occupancy", "done", "invalid", "internal_errors"):
            assert isinstance(entry[name], int)
        if "apply_ms" in entry:
            assert 0 <= entry["apply_ms"]["p50"] <= entry["apply_ms"]["p95"] <= entry["apply_ms"]["p99"]
        assert 0 <= entry["last_heard_s"] <= entry["connected_s"]


@rule(ROWS, "api/status/processors/counts", "transactions that a processor applies and refuses are counted")
def _(world: World) -> None:
    def counted() -> tuple[int, int]:
        data = world.http.get("/status/processors").json["data"]
        return sum(entry["done"] for entry in data), sum(entry["invalid"] for entry in data)

    before = counted()
    world.commit(world.new())
    world.reject(world.bad())
    after = counted()
    assert after[0] > before[0]
    assert after[1] > before[1]


def _grows(world: World) -> None:
    first = world.http.get("/status/system").json["data"]
    second = world.http.get("/status/system").json["data"]
    for name in ("network_rx", "network_tx"):
        assert second[name] >= first[name]


ROWS += [
    row("api/status/config", "the running configuration with its limits; no secret, no private path",
        get("/status/config"), _config),
    row("api/status/families", "every family that the setting names, a processor serves or a pending batch needs",
        get("/status/families"), _families),
    row("api/status/processors", "each connected processor with its families, its state and what it has done",
        get("/status/processors"), _processors),
    row("api/status/system", "the host's time, fractions of processor and memory in use, bytes since start",
        get("/status/system"), _system),
    Row("api/status/system/since-start", "network_rx and network_tx never fall", partial(_grows)),
]  # fmt: skip


# The root


def _root(answer: Answer, world: World) -> None:
    assert answer.status == 200
    text = answer.body.decode()
    assert "name" in text
    assert "version" in text
    assert f'"{world.http.url}/docs"' in text
    assert f'"{world.http.url}/openapi.json"' in text


def _resolved(document: Any, entry: Any) -> Any:
    """The component that a reference of the document names."""
    for part in entry.get("$ref", "#").split("/")[1:]:
        document = document[part]
    return document if "$ref" in entry else entry


def _openapi(answer: Answer, _: World) -> None:
    assert answer.status == 200
    content = answer.json
    assert content["openapi"].startswith("3.1.")
    paths = {path.partition("?")[0].replace("{block}", "{block_id}").replace("{batch}", "{batch_id}")
             .replace("{transaction}", "{transaction_id}") for path in ROUTES}  # fmt: skip
    assert paths <= set(content["paths"])
    for name in ("sort", "fields", "omit"):
        listed = [_resolved(content, entry) for entry in content["paths"]["/blocks"]["get"]["parameters"]]
        assert ["eserved" in entry["description"] for entry in listed if entry["name"] == name] == [True]
    assert {"get", "post"} <= set(content["paths"]["/batches"])
    assert {"get", "post"} <= set(content["paths"]["/batch_status"])


def _docs(answer: Answer, _: World) -> None:
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/html")


def _metrics(answer: Answer, _: World) -> None:
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")
    text = answer.body.decode()
    for name in (
        "dovetail_rest_requests_total", "dovetail_rest_request_seconds", "dovetail_validator_blocks_total",
        "dovetail_validator_batches_total", "dovetail_validator_transactions_total", "dovetail_validator_block_seconds",
        "dovetail_validator_apply_seconds", "dovetail_validator_pending_batches", "dovetail_validator_processors",
    ):  # fmt: skip
        assert f"# TYPE {name.removesuffix('_total')}" in text, name
    assert 'route="/blocks"' in text
    assert 'family="intkey"' in text


ROWS += [
    row("api/every/root", "/ names the service, its version, /docs and /openapi.json", get("/"), _root),
    row("api/every/openapi", "/openapi.json describes the API in OpenAPI 3.1", get("/openapi.json"), _openapi),
    row("api/every/docs", "/docs is an HTML page", get("/docs"), _docs),
    row("issue/metrics", "/metrics has both processes' metrics in the Prometheus format", get("/metrics"), _metrics),
    row("issue/healthz", "/healthz answers 200 while the API runs", get("/healthz"), status(200)),
    row("issue/readyz", "/readyz answers 200 if the node has a genesis block", get("/readyz"), status(200)),
]
