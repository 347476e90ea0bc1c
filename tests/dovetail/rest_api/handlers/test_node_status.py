"""/stats and /status: their shapes, and invalid answers of the validator."""

from dovetail.rest_api.config import POSITIVE_KEYS, RestConfig
from protos.node_pb2 import ProcessorsResponse
from tests.dovetail.rest_api.handlers.node_answers import SHAPE, TIME, TOTALS, data, set_status
from tests.dovetail.rest_api.support import Api, NodeStatus, Type, error_of, run, running_api


async def listed(api: Api, path: str) -> list[dict[str, object]]:
    """``data`` of a path that answers with a list."""
    found: object = await data(api, path)
    assert isinstance(found, list)
    return found


def test_stats_of_the_validator_have_one_shape_for_all_and_for_each_family() -> None:
    async def test() -> None:
        async with running_api() as api:
            set_status(api)
            found = await data(api, "/stats/validator")
            assert list(found) == ["timestamp", *SHAPE, "intkey:1.0"]
            assert found == {"timestamp": TIME} | SHAPE | {"intkey:1.0": {"timestamp": TIME} | SHAPE}

    run(test())


def test_families_with_equal_keys_are_added() -> None:
    async def test() -> None:
        async with running_api() as api:
            status = NodeStatus(status="OK", timestamp=TIME)
            for name, version in [("a:b", "c"), ("a", "b:c"), ("other", "")]:
                status.families.add(family_name=name, family_version=version, totals=TOTALS)
            set_status(api, status)
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
            set_status(api)
            found = await data(api, "/stats/gossip")
            assert found == {
                "timestamp": TIME,
                "peer_count": 0,
                "packets": {"received": 0, "sent": 0, "dropped": 0, "duplicate": 0},
                "bytes": {"received": 0, "sent": 0, "dropped": 0},
                "messages_handled": 0,
            }

    run(test())


def test_the_configuration_is_grouped_and_hides_the_address_of_the_validator() -> None:
    async def test() -> None:
        async with running_api(config=RestConfig(bind="127.0.0.1:8088", timeout_s=7)) as api:
            set_status(api)
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


def test_a_configuration_without_limits_is_an_invalid_answer() -> None:
    async def test() -> None:
        async with running_api() as api:
            set_status(api, NodeStatus(status="OK"))
            assert error_of(await api.http.get("/status/config"))[:2] == (500, 20)
            set_status(api, NodeStatus())
            assert error_of(await api.http.get("/status/system"))[:2] == (500, 20)

    run(test())


def test_the_system_is_that_of_the_validator() -> None:
    async def test() -> None:
        async with running_api() as api:
            set_status(api)
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
            "in_process": True,
            "state": "DRAINING",
            "families": [
                {
                    "family_name": "intkey",
                    "family_version": "2.0",
                    "build_id": "7f3a",
                    "migrates": True,
                    "namespaces": ["1cf126", ""],
                    "idle": True,
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


def test_each_processor_is_listed() -> None:
    async def test() -> None:
        async with running_api() as api:
            api.validator.answer(Type.PROCESSORS_REQUEST, Type.PROCESSORS_RESPONSE, PROCESSORS)
            first, second, third = await listed(api, "/status/processors")
            assert first == {
                "connection_id": "00ff",
                "in_process": True,
                "state": "draining",
                "families": [
                    {
                        "family_name": "intkey",
                        "family_version": "2.0",
                        "build_id": "7f3a",
                        "migrates": True,
                        "namespaces": ["1cf126", ""],
                        "idle": True,
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


def test_an_unknown_state_of_a_processor_is_an_invalid_answer() -> None:
    async def test() -> None:
        async with running_api() as api:
            odd = ProcessorsResponse(processors=[{"connection_id": "00"}])
            api.validator.answer(Type.PROCESSORS_REQUEST, Type.PROCESSORS_RESPONSE, odd)
            assert error_of(await api.http.get("/status/processors"))[:2] == (500, 20)

    run(test())
