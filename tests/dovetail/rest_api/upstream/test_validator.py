"""The connection to the validator: lost, restored, slow, full, and with undecodable frames."""

import asyncio

import pytest
import structlog

from dovetail.rest_api.config import RestConfig
from dovetail.rest_api.errors import ApiError, Problem
from dovetail.rest_api.routes import ENDPOINTS
from dovetail.rest_api.upstream.validator import ValidatorConnection
from protos import client_batch_submit_pb2, client_block_pb2, node_pb2
from tests.dovetail.rest_api.support import Api, Asked, ListResponse, Type, error_of, logged, one_turn, run, running_api

OK = ListResponse(status=ListResponse.OK, head_id="f" * 128)


async def lose_validator(api: Api) -> None:
    """Stop the validator and wait until the API has logged it."""
    with structlog.testing.capture_logs() as logs:
        api.validator.stop()
        await logged(logs, "lost the validator")


async def ping(api: Api) -> None:
    """Return once the API has read everything that the validator sent before."""
    asked = await reach(api)
    api.validator.send(asked, Type.PING_REQUEST, correlation_id="ping")
    assert (await api.validator.asked.get())[1:] == (Type.PING_RESPONSE, "ping", b"")


async def reach(api: Api) -> Asked:
    api.validator.answer(Type.LIST_REQUEST, Type.LIST_RESPONSE, OK)
    assert (await api.http.get("/blocks")).status_code == 200
    return await api.validator.asked.get()


def test_a_lost_connection_fails_pending_requests_at_once_and_comes_back() -> None:
    async def test() -> None:
        async with running_api() as api:
            waiting = [asyncio.create_task(api.http.get("/blocks")) for _ in range(3)]
            for _ in waiting:
                await api.validator.asked.get()
            await lose_validator(api)
            for response in await asyncio.gather(*waiting):
                assert error_of(response)[:2] == (503, 18)
            assert error_of(await api.http.get("/blocks/1"))[:2] == (503, 18)
            assert api.connection.in_flight == 0
            api.validator.start()
            await api.connection.wait_connected()
            # Refused requests are not sent later.
            assert api.validator.asked.empty()
            await reach(api)

    run(test())


def test_no_answer_in_time_is_17_and_a_late_answer_is_dropped() -> None:
    async def test() -> None:
        async with running_api(config=RestConfig(timeout_s=1)) as api:
            response = await api.http.get("/blocks")
            assert error_of(response)[:2] == (503, 17)
            assert api.connection.in_flight == 0
            api.validator.send(await api.validator.asked.get(), Type.LIST_RESPONSE, OK.SerializeToString())
            await ping(api)

    run(test())


def test_pings_are_answered_while_requests_wait() -> None:
    async def test() -> None:
        async with running_api() as api:
            waiting = asyncio.create_task(api.http.get("/blocks"))
            asked = await api.validator.asked.get()
            api.validator.send(asked, Type.PING_REQUEST, correlation_id="p1")
            assert (await api.validator.asked.get())[1:] == (Type.PING_RESPONSE, "p1", b"")
            api.validator.send(asked, Type.LIST_RESPONSE, OK.SerializeToString())
            assert (await waiting).status_code == 200

    run(test())


def test_undecodable_frames_are_ignored() -> None:
    async def test() -> None:
        async with running_api() as api:
            asked = await reach(api)
            for frame in (b"", b"\xff", b"\x12\x01\xff", b"\x08\x07"):
                api.validator.send_raw(asked, frame)
            api.validator.send(asked, Type.LIST_RESPONSE, correlation_id="")
            await ping(api)

    run(test())


def test_answers_in_any_order_reach_their_requests() -> None:
    async def test() -> None:
        async with running_api() as api:
            waiting = {number: asyncio.create_task(api.http.get(f"/blocks?count={number}")) for number in range(1, 30)}
            asked = [await api.validator.asked.get() for _ in waiting]
            for entry in reversed(asked):
                # The last byte of the content is the count, which the answer repeats as total_count.
                content = ListResponse(status="OK", head_id="f" * 128, total_count=entry.content[-1])
                api.validator.send(entry, Type.LIST_RESPONSE, content.SerializeToString())
            for number, task in waiting.items():
                assert (await task).json()["paging"]["total_count"] == number

    run(test())


@pytest.mark.parametrize("config", [RestConfig(requests_in_flight_max=2), RestConfig(request_bytes_in_flight_max=300)])
def test_requests_in_flight_are_bounded(config: RestConfig) -> None:
    async def test() -> None:
        async with running_api(config=config) as api:
            name = "a" * 64
            waiting = [asyncio.create_task(api.http.get(f"/state?address={name}")) for _ in range(10)]
            while not any(task.done() for task in waiting):
                await one_turn()
            refused = next(task for task in waiting if task.done()).result()
            assert error_of(refused)[:2] == (503, 15)
            assert refused.headers["retry-after"] == "1"
            assert api.connection.in_flight == 2
            for _ in range(2):
                api.validator.send(await api.validator.asked.get(), Type.LIST_RESPONSE, OK.SerializeToString())
            answers = [(await task).status_code for task in waiting]
            assert sorted(answers) == [200] * 2 + [503] * 8
            assert api.connection.in_flight == 0
            assert (await reach(api)).message_type == Type.LIST_REQUEST

    run(test())


def test_closing_refuses_pending_and_later_requests() -> None:
    async def test() -> None:
        async with running_api() as api:
            waiting = asyncio.create_task(api.http.get("/blocks"))
            await api.validator.asked.get()
            api.connection.close()
            assert error_of(await waiting)[:2] == (503, 18)
            assert error_of(await api.http.get("/blocks"))[:2] == (503, 18)

    run(test())


def test_without_a_validator_requests_are_refused_at_once() -> None:
    async def test() -> None:
        async with running_api() as api:
            await lose_validator(api)
            assert not api.connection.connected
            assert error_of(await api.http.get("/transactions"))[:2] == (503, 18)

    run(test())


def test_an_unusable_address_is_a_wrong_setting() -> None:
    async def test() -> None:
        validator = ValidatorConnection(RestConfig(validator="nowhere"))
        with pytest.raises(ValueError, match="validator: 'nowhere'"):
            validator.open()

    run(test())


def test_block_numbers_are_sent_as_numbers() -> None:
    async def test() -> None:
        async with running_api() as api:
            waiting = asyncio.create_task(api.http.get(f"/blocks/000{2**64 - 1}"))
            asked = await api.validator.asked.get()
            assert asked.message_type == Type.CLIENT_BLOCK_GET_BY_NUM_REQUEST
            question = client_block_pb2.ClientBlockGetByNumRequest.FromString(asked.content)
            assert question.block_num == 2**64 - 1
            answer = client_block_pb2.ClientBlockGetResponse(status="NO_RESOURCE", head_id="ab" * 64)
            api.validator.send(asked, Type.CLIENT_BLOCK_GET_RESPONSE, answer.SerializeToString())
            assert error_of(await waiting)[:2] == (404, 70)

    run(test())


NEED_NO_VALIDATOR = {"/", "/docs", "/openapi.json", "/healthz", "/metrics"}


def test_without_a_validator_only_routes_that_need_it_are_503() -> None:
    async def test() -> None:
        async with running_api() as api:
            await lose_validator(api)
            for endpoint in ENDPOINTS:
                path = endpoint.path.replace("{address}", "a" * 70).replace("{block_id}", "1")
                path = path.replace("{batch_id}", "a" * 128).replace("{transaction_id}", "a" * 128)
                response = await api.http.get(f"{path}?id={'a' * 128}")
                if endpoint.path in NEED_NO_VALIDATOR:
                    assert response.status_code == 200
                else:
                    assert error_of(response)[:2] == (503, 18)
            octets = {"content-type": "application/octet-stream"}
            assert error_of(await api.http.post("/batches", content=b"x", headers=octets))[:2] == (503, 18)
            api.validator.start()
            await api.connection.wait_connected()
            await reach(api)

    run(test())


@pytest.mark.parametrize("is_wait", [True, False])
def test_a_timeout_cancels_the_wait_at_the_validator(is_wait: bool) -> None:
    async def test() -> None:
        async with running_api() as api:
            with pytest.raises(ApiError) as raised:
                await api.connection.request(
                    Type.CLIENT_BATCH_STATUS_REQUEST,
                    b"",
                    Type.CLIENT_BATCH_STATUS_RESPONSE,
                    client_batch_submit_pb2.ClientBatchStatusResponse,
                    request_id="r",
                    timeout_s=0.001,
                    is_wait=is_wait,
                )
            assert raised.value.problem == Problem.TIMED_OUT
            api.validator.answer(Type.LIST_REQUEST, Type.LIST_RESPONSE, ListResponse(status="OK", head_id="f" * 128))
            await api.http.get("/blocks")
            await api.validator.asked.get()
            then = await api.validator.asked.get()
            if is_wait:
                assert then.message_type == Type.STATUS_WAIT_CANCEL
                assert node_pb2.StatusWaitCancel.FromString(then.content).correlation_id == "r.1"
            else:
                assert then.message_type == Type.LIST_REQUEST

    run(test())
