"""/healthz, /readyz and /metrics, with and without a validator."""

import pytest

from dovetail.rest_api.handlers import health
from protos.node_pb2 import MetricsResponse
from tests.dovetail.rest_api.handlers.node_answers import ASKING, STATUS, data, set_status
from tests.dovetail.rest_api.support import NodeStatus, Type, error_of, run, running_api, samples


def test_before_genesis_only_readiness_is_refused() -> None:
    async def test() -> None:
        async with running_api() as api:
            early = NodeStatus.FromString(STATUS.SerializeToString())
            early.status = NodeStatus.NOT_READY
            set_status(api, early)
            assert error_of(await api.http.get("/readyz"))[:2] == (503, 15)
            for path in ["/healthz", "/metrics", *ASKING]:
                assert (await api.http.get(path)).status_code == 200

    run(test())


def test_healthz_needs_no_validator_and_readyz_does() -> None:
    async def test() -> None:
        async with running_api() as api:
            set_status(api)
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


def test_a_node_with_a_condition_is_ready() -> None:
    async def test() -> None:
        async with running_api() as api:
            held = {"condition": "no_block", "seconds": 2.5, "message": "start it again"}
            degraded = NodeStatus.FromString(STATUS.SerializeToString())
            degraded.conditions.add(**held)
            set_status(api, degraded)
            found = await data(api, "/readyz")
            assert (found["status"], found["conditions"]) == ("degraded", [held])

    run(test())


def test_a_node_with_warnings_is_ready() -> None:
    async def test() -> None:
        async with running_api() as api:
            warned = NodeStatus(status="OK", head_id="f" * 128, head_num=9, warnings=["one", "other"])
            api.validator.answer(Type.NODE_STATUS_REQUEST, Type.NODE_STATUS_RESPONSE, warned)
            response = await api.http.get("/readyz")
            assert (response.status_code, response.json()["data"]["warnings"]) == (200, ["one", "other"])

    run(test())


def test_health_links_do_not_repeat_parameters() -> None:
    async def test() -> None:
        async with running_api() as api:
            set_status(api)
            for path in ("/healthz", "/readyz"):
                response = await api.http.get(f"{path}?{'x' * 1000}=1")
                assert response.json()["link"] == f"http://node:8080{path}"

    run(test())


def test_a_silent_validator_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "READY_TIMEOUT_S", 0.01)

    async def test() -> None:
        async with running_api() as api:
            assert error_of(await api.http.get("/readyz"))[:2] == (503, 17)
            assert api.connection.in_flight == 0

    run(test())


def test_metrics_hold_those_of_both_processes() -> None:
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
def test_metrics_without_the_validator_are_those_of_this_process(
    is_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "METRICS_TIMEOUT_S", 0.01)

    async def test() -> None:
        async with running_api() as api:
            if is_lost:
                api.connection.close()
            found = samples(await api.http.get("/metrics"))
            assert found["dovetail_rest_validator_connected", ()] == (0 if is_lost else 1)
            assert not any("dovetail_validator" in name for name, _ in found)
            assert found["dovetail_rest_validator_questions_in_flight", ()] == 0

    run(test())
