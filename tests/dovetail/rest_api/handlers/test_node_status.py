"""/stats, /status, /healthz, /readyz and /metrics: their shapes, and what they say without a validator."""

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dovetail.rest_api.config import POSITIVE_KEYS, RestConfig
from dovetail.rest_api.handlers import health
from protos.node_pb2 import MetricsResponse, ProcessorsResponse
from tests.dovetail.rest_api.support import Api, ListResponse, NodeStatus, Type, error_of, run, running_api

# The validator's clock, not this machine's.
TIME = "2001-02-03T04:05:06.789Z"
TOTALS = {
    "blocks_committed": 7,
    "blocks_claimed": 6,
    "batches_committed": 5,
    "batches_invalid": 4,
    "transactions_committed": 3,
    "transactions_invalid": 2,
}
SHAPE = {
    "blocks": {"committed": 7, "rolledback": 0, "claimed": 6},
    "batches": {"committed": 5, "rolledback": 0, "invalid": 4},
    "transactions": {"committed": 3, "rolledback": 0, "invalid": 2},
    "rollbacks": 0,
}
STATUS = NodeStatus(
    status="OK",
    head_id="f" * 128,
    head_num=9,
    pending_batches=8,
    totals=TOTALS,
    families=[{"family_name": "intkey", "family_version": "1.0", "totals": TOTALS}],
    config=[
        {"key": "limits.block_transactions_max", "number": 5000},
        {"key": "limits.zero", "number": 0},
        {"key": "validator.bind", "text": "tcp://127.0.0.1:4004"},
        {"key": "validator.version", "text": "0.1.0"},
    ],
    timestamp=TIME,
    system={"percent_cpu": 0.25, "percent_memory": 0.5, "network_rx": 10, "network_tx": 11},
)
ASKING = ["/stats/validator", "/stats/gossip", "/status/config", "/status/processors", "/status/system"]


def tell(api: Api, status: NodeStatus = STATUS) -> None:
    api.validator.answer(Type.NODE_STATUS_REQUEST, Type.NODE_STATUS_RESPONSE, status)
    api.validator.answer(Type.METRICS_REQUEST, Type.METRICS_RESPONSE, MetricsResponse())
    api.validator.answer(Type.PROCESSORS_REQUEST, Type.PROCESSORS_RESPONSE, ProcessorsResponse())


async def listed(api: Api, path: str) -> list[dict[str, object]]:
    """As ``data``, of a path that lists."""
    found: object = await data(api, path)
    assert isinstance(found, list)
    return found


async def data(api: Api, path: str) -> dict[str, object]:
    """``data`` of an answer whose envelope is checked; its time is taken out."""
    response = await api.http.get(path)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert list(response.json()) == ["data", "link"]
    assert response.json()["link"] == f"http://node:8080{path}"
    found: dict[str, object] = response.json()["data"]
    return found


def test_stats_of_the_validator_have_one_shape_over_all_and_by_family() -> None:
    async def test() -> None:
        async with running_api() as api:
            tell(api)
            found = await data(api, "/stats/validator")
            assert list(found) == ["timestamp", *SHAPE, "intkey:1.0"]
            assert found == {"timestamp": TIME} | SHAPE | {"intkey:1.0": {"timestamp": TIME} | SHAPE}

    run(test())


def test_families_that_read_the_same_are_one_entry() -> None:
    async def test() -> None:
        async with running_api() as api:
            status = NodeStatus(status="OK", timestamp=TIME)
            for name, version in [("a:b", "c"), ("a", "b:c"), ("other", "")]:
                status.families.add(family_name=name, family_version=version, totals=TOTALS)
            tell(api, status)
            found = await data(api, "/stats/validator")
            assert list(found)[-2:] == ["a:b:c", "other:"]
            assert found["other:"] == {"timestamp": TIME} | SHAPE
            assert found["a:b:c"] == {
                "timestamp": TIME,
                "blocks": {"committed": 14, "rolledback": 0, "claimed": 12},
                "batches": {"committed": 10, "rolledback": 0, "invalid": 8},
                "transactions": {"committed": 6, "rolledback": 0, "invalid": 4},
                "rollbacks": 0,
            }

    run(test())


def test_stats_of_gossip_are_zeros_without_peers() -> None:
    async def test() -> None:
        async with running_api() as api:
            tell(api)
            found = await data(api, "/stats/gossip")
            assert found == {
                "timestamp": TIME,
                "peer_count": 0,
                "packets": {"received": 0, "sent": 0, "dropped": 0, "duplicate": 0},
                "bytes": {"received": 0, "sent": 0, "dropped": 0},
                "messages_handled": 0,
            }

    run(test())


def test_the_configuration_is_grouped_and_keeps_the_address_of_the_validator_to_itself() -> None:
    async def test() -> None:
        async with running_api(config=RestConfig(bind="127.0.0.1:8088", timeout_s=7)) as api:
            tell(api)
            found = await data(api, "/status/config")
            own = found.pop("rest_api")
            assert found == {
                "max_transactions_per_block": 5000,
                "min_transactions_per_block": 1,
                "validator": {"bind": "tcp://127.0.0.1:4004", "version": "0.1.0"},
                "limits": {"block_transactions_max": 5000, "zero": 0},
            }
            assert isinstance(own, dict)
            assert (own["bind"], own["timeout_s"]) == ("127.0.0.1:8088", 7)
            assert own["trusted_proxies"] == ["127.0.0.1", "::1"]
            assert own["body_bytes_max"] == 8 * 1024 * 1024
            config = RestConfig()
            for key in POSITIVE_KEYS[1:]:
                assert own[key] == getattr(config, key)
            assert "validator" not in own

    run(test())


def test_a_configuration_without_limits_is_no_answer() -> None:
    async def test() -> None:
        async with running_api() as api:
            tell(api, NodeStatus(status="OK"))
            assert error_of(await api.http.get("/status/config"))[:2] == (500, 20)
            tell(api, NodeStatus())
            assert error_of(await api.http.get("/status/system"))[:2] == (500, 20)

    run(test())


def test_the_system_is_the_validators() -> None:
    async def test() -> None:
        async with running_api() as api:
            tell(api)
            found = await data(api, "/status/system")
            assert found == {
                "local_time": TIME,
                "percent_cpu": 0.25,
                "percent_memory": 0.5,
                "network_rx": 10,
                "network_tx": 11,
            }

    run(test())


PROCESSORS = ProcessorsResponse(
    processors=[
        {
            "connection_id": "00ff",
            "state": "DRAINING",
            "families": [
                {
                    "family_name": "intkey",
                    "family_version": "2.0",
                    "build_id": "7f3a",
                    "migrates": True,
                    "namespaces": ["1cf126", ""],
                }
            ],
            "packed_version": 1,
            "max_occupancy": 2,
            "in_flight_tasks": 3,
            "in_flight_transactions": 4,
            "done": 5,
            "invalid": 6,
            "internal_errors": 7,
            "apply_ms_p50": 0.25,
            "apply_ms_p95": 0.5,
            "apply_ms_p99": 0.75,
            "connected_s": 1.5,
            "last_heard_s": 0.5,
        },
        {"connection_id": "01", "state": "SILENT"},
        {"connection_id": "02", "state": "TAKES_WORK", "apply_ms_p50": 0, "apply_ms_p95": 0, "apply_ms_p99": 0},
    ],
    timestamp=TIME,
)


def test_processors_are_told_of_one_by_one() -> None:
    async def test() -> None:
        async with running_api() as api:
            api.validator.answer(Type.PROCESSORS_REQUEST, Type.PROCESSORS_RESPONSE, PROCESSORS)
            first, second, third = await listed(api, "/status/processors")
            assert first == {
                "connection_id": "00ff",
                "state": "draining",
                "families": [
                    {
                        "family_name": "intkey",
                        "family_version": "2.0",
                        "build_id": "7f3a",
                        "migrates": True,
                        "namespaces": ["1cf126", ""],
                    }
                ],
                "packed_version": 1,
                "max_occupancy": 2,
                "in_flight": {"tasks": 3, "transactions": 4},
                "done": 5,
                "invalid": 6,
                "internal_errors": 7,
                "apply_ms": {"p50": 0.25, "p95": 0.5, "p99": 0.75},
                "connected_s": 1.5,
                "last_heard_s": 0.5,
            }
            assert (second["state"], second["families"], second["done"]) == ("silent", [], 0)
            assert "apply_ms" not in second
            assert (third["state"], third["apply_ms"]) == ("takes_work", {"p50": 0, "p95": 0, "p99": 0})
            api.validator.answer(Type.PROCESSORS_REQUEST, Type.PROCESSORS_RESPONSE, ProcessorsResponse())
            assert await listed(api, "/status/processors") == []

    run(test())


def test_a_state_that_is_none_is_no_answer() -> None:
    async def test() -> None:
        async with running_api() as api:
            odd = ProcessorsResponse(processors=[{"connection_id": "00"}])
            api.validator.answer(Type.PROCESSORS_REQUEST, Type.PROCESSORS_RESPONSE, odd)
            assert error_of(await api.http.get("/status/processors"))[:2] == (500, 20)

    run(test())


def test_before_genesis_only_readiness_is_refused() -> None:
    async def test() -> None:
        async with running_api() as api:
            early = NodeStatus.FromString(STATUS.SerializeToString())
            early.status = NodeStatus.NOT_READY
            tell(api, early)
            assert error_of(await api.http.get("/readyz"))[:2] == (503, 15)
            for path in ["/healthz", "/metrics", *ASKING]:
                assert (await api.http.get(path)).status_code == 200

    run(test())


def test_alive_needs_no_validator_and_ready_does() -> None:
    async def test() -> None:
        async with running_api() as api:
            tell(api)
            ready = {
                "status": "ready",
                "head_id": "f" * 128,
                "head_num": 9,
                "pending_batches": 8,
                "conditions": [],
                "warnings": [],
            }
            assert await data(api, "/readyz") == ready
            api.connection.close()
            assert await data(api, "/healthz") == {"status": "alive"}
            for path in ["/readyz", *ASKING]:
                assert error_of(await api.http.get(path))[:2] == (503, 18)

    run(test())


def test_a_condition_is_told_and_leaves_the_node_ready() -> None:
    async def test() -> None:
        async with running_api() as api:
            held = {"condition": "no_block", "seconds": 2.5, "message": "start it again"}
            degraded = NodeStatus.FromString(STATUS.SerializeToString())
            degraded.conditions.add(**held)
            tell(api, degraded)
            told = await data(api, "/readyz")
            assert (told["status"], told["conditions"]) == ("degraded", [held])

    run(test())


def test_health_does_not_repeat_what_it_is_asked_with() -> None:
    async def test() -> None:
        async with running_api() as api:
            tell(api)
            for path in ("/healthz", "/readyz"):
                response = await api.http.get(f"{path}?{'x' * 1000}=1")
                assert response.json()["link"] == f"http://node:8080{path}"

    run(test())


def test_a_validator_that_is_silent_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_READY_TIMEOUT_S", 0.01)

    async def test() -> None:
        async with running_api() as api:
            assert error_of(await api.http.get("/readyz"))[:2] == (503, 17)
            assert api.connection.in_flight == 0

    run(test())


def samples(response: httpx.Response) -> dict[tuple[str, tuple[str, ...]], float]:
    """Every sample by name and its label values in the order of their names; a family that comes twice fails."""
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(response.text))
    assert len({family.name for family in families}) == len(families)
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_metrics_hold_both_processes_figures() -> None:
    async def test() -> None:
        async with running_api() as api:
            text = b"# HELP dovetail_validator_waiters Who waits.\n# TYPE dovetail_validator_waiters gauge\n"
            answer = MetricsResponse(text=text + b"dovetail_validator_waiters 3.0\n")
            api.validator.answer(Type.METRICS_REQUEST, Type.METRICS_RESPONSE, answer)
            found = samples(await api.http.get("/metrics"))
            assert found["dovetail_validator_waiters", ()] == 3
            assert found["dovetail_rest_validator_connected", ()] == 1
            assert found["dovetail_rest_requests_in_flight", ()] == 1
            assert found["dovetail_rest_process_resident_memory_bytes", ()] > 0

    run(test())


@pytest.mark.parametrize("is_lost", [True, False])
def test_metrics_without_the_validator_are_this_processes_alone(is_lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_METRICS_TIMEOUT_S", 0.01)

    async def test() -> None:
        async with running_api() as api:
            if is_lost:
                api.connection.close()
            found = samples(await api.http.get("/metrics"))
            assert found["dovetail_rest_validator_connected", ()] == (0 if is_lost else 1)
            assert not any("dovetail_validator" in name for name, _ in found)
            assert found["dovetail_rest_validator_questions_in_flight", ()] == 0

    run(test())


def test_requests_count_by_route_and_nothing_a_client_sends_is_a_label() -> None:
    async def test() -> None:
        async with running_api() as api:
            api.validator.answer(Type.LIST_REQUEST, Type.LIST_RESPONSE, ListResponse(status="OK", head_id="f" * 128))
            api.validator.answer(Type.METRICS_REQUEST, Type.METRICS_RESPONSE, MetricsResponse())
            for method, path in [
                ("GET", "/blocks/secret"),
                ("HEAD", "/blocks/secret2"),
                ("GET", "/blocks?count=1"),
                ("GET", "/secret"),
                ("GET", "/secret/3"),
                ("SECRET", "/blocks"),
                ("SECRET2", "/secret"),
                ("OPTIONS", "/blocks"),
            ]:
                await api.http.request(method, path)
            found = samples(await api.http.get("/metrics"))
            counted = {
                labels: value for (name, labels), value in found.items() if name == "dovetail_rest_requests_total"
            }
            assert counted == {
                ("GET", "/blocks/{block_id}", "404"): 1,
                ("HEAD", "/blocks/{block_id}", "404"): 1,
                ("GET", "/blocks", "200"): 1,
                ("GET", "", "404"): 2,
                ("other", "/blocks", "405"): 1,
                ("other", "", "404"): 1,
                ("OPTIONS", "/blocks", "204"): 1,
            }
            assert found["dovetail_rest_request_seconds_count", ("GET", "/blocks")] == 1
            assert not any("secret" in value.lower() for _, labels in found for value in labels)

    run(test())
