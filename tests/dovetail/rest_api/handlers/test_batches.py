"""POST /batches, GET and POST /batch_status."""

import httpx
import msgspec
import pytest

from dovetail.ledger.building import encode_batch_list
from dovetail.ledger.limits import Limits
from dovetail.rest_api.config import RestConfig
from protos import validator_pb2
from tests.dovetail.rest_api.support import (
    Api,
    Status,
    StatusRequest,
    StatusResponse,
    Submitted,
    Type,
    error_of,
    make_batch,
    run,
    running_api,
)

ONE, TWO = make_batch("one"), make_batch("two")


BODY = encode_batch_list([ONE, TWO])


OCTETS = {"content-type": "application/octet-stream"}


def accept(api: Api) -> None:
    submitted = Submitted(status=Submitted.OK, batch_ids=[ONE.id, TWO.id])
    api.validator.answer(Type.CLIENT_BATCH_SUBMIT_REQUEST, Type.CLIENT_BATCH_SUBMIT_RESPONSE, submitted)


def set_statuses(api: Api, *statuses: Status) -> None:
    content = StatusResponse(status=StatusResponse.OK, batch_statuses=statuses)
    api.validator.answer(Type.CLIENT_BATCH_STATUS_REQUEST, Type.CLIENT_BATCH_STATUS_RESPONSE, content)


async def asked_of(api: Api, message_type: int) -> bytes:
    while True:
        asked = await api.validator.asked.get()
        if asked.message_type == message_type:
            return asked.content


@pytest.mark.parametrize("query", ["", "?wait=false", "?wait=0", "?wait=FALSE", "?wait=-0"])
def test_accepted_without_wait_is_202_and_only_a_link(query: str) -> None:
    async def test() -> None:
        async with running_api() as api:
            accept(api)
            response = await api.http.post(f"/batches{query}", content=BODY, headers=OCTETS)
            assert response.status_code == 202
            assert response.json() == {"link": f"http://node:8080/batch_status?id={ONE.id},{TWO.id}"}
            assert (await api.validator.asked.get()).content == BODY
            assert api.validator.asked.empty()

    run(test())


@pytest.mark.parametrize(
    ("query", "seconds"),
    [("wait=7", 7), ("wait", 285), ("wait=", 285), ("wait=true", 285), ("wait=1.5", 285), (f"wait={10**30}", 3600)],
)
def test_all_committed_within_wait_is_201_and_links_to_the_batches(query: str, seconds: int) -> None:
    async def test() -> None:
        async with running_api() as api:
            accept(api)
            set_statuses(api, *[Status(batch_id=batch.id, status=Status.COMMITTED) for batch in (ONE, TWO)])
            response = await api.http.post(f"/batches?{query}", content=BODY, headers=OCTETS)
            assert response.status_code == 201
            assert response.json() == {"link": f"http://node:8080/batches?id={ONE.id},{TWO.id}"}
            question = StatusRequest.FromString(await asked_of(api, Type.CLIENT_BATCH_STATUS_REQUEST))
            assert (list(question.batch_ids), question.wait, question.timeout) == ([ONE.id, TWO.id], True, seconds)

    run(test())


def test_wait_that_ends_with_a_batch_not_committed_is_200_with_data_details_and_link() -> None:
    async def test() -> None:
        async with running_api() as api:
            accept(api)
            invalid = Status.InvalidTransaction(transaction_id="f" * 128, message="too low", extended_data=b"\x00\xff")
            set_statuses(
                api,
                Status(batch_id=ONE.id, status=Status.COMMITTED),
                Status(
                    batch_id=TWO.id, status=Status.INVALID, reason="invalid_transaction", invalid_transactions=[invalid]
                ),
            )
            response = await api.http.post("/batches?wait=1", content=BODY, headers=OCTETS)
            assert response.status_code == 200
            assert list(response.json()) == ["data", "details", "link"]
            assert response.json() == {
                "data": {ONE.id: "COMMITTED", TWO.id: "INVALID"},
                "details": {
                    TWO.id: {
                        "reason": "invalid_transaction",
                        "transaction_id": "f" * 128,
                        "message": "too low",
                        "extended_data": "AP8=",
                    }
                },
                "link": f"http://node:8080/batch_status?id={ONE.id},{TWO.id}",
            }

    run(test())


def test_the_details_of_one_answer_are_bounded_over_all_questions_to_the_validator() -> None:
    """The validator is asked for two batches at a time, and each of its answers would fit."""

    async def test() -> None:
        limits = Limits(status_ids_max=2, page_bytes_max=1_000)
        async with running_api(config=RestConfig(limits=limits)) as api:
            ids = [digit * 128 for digit in "abcd"]

            def statuses(content: bytes) -> StatusResponse:
                return StatusResponse(
                    status="OK", batch_statuses=[refused(each) for each in StatusRequest.FromString(content).batch_ids]
                )

            def refused(batch_id: str) -> Status:
                invalid = Status.InvalidTransaction(transaction_id="f" * 128, message="no", extended_data=bytes(300))
                return Status(
                    batch_id=batch_id, status="INVALID", reason="invalid_transaction", invalid_transactions=[invalid]
                )

            api.validator.answer(
                Type.CLIENT_BATCH_SUBMIT_REQUEST,
                Type.CLIENT_BATCH_SUBMIT_RESPONSE,
                Submitted(status=Submitted.OK, batch_ids=ids),
            )
            api.validator.answers[Type.CLIENT_BATCH_STATUS_REQUEST] = (Type.CLIENT_BATCH_STATUS_RESPONSE, statuses)
            response = await api.http.post("/batches?wait=1", content=BODY, headers=OCTETS)
            details = response.json()["details"]
            assert [bool(details[each]["extended_data"]) for each in ids] == [True, True, False, False]
            assert [details[each].get("omitted_bytes") for each in ids] == [None, None, 300, 300]
            assert {details[each]["message"] for each in ids} == {"no"}

    run(test())


@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        (Submitted(status=Submitted.INVALID_BATCH, reason="signature_mismatch", message="said"), 400, 30),
        (Submitted(status=Submitted.INVALID_BATCH, reason="no_batches", message="said"), 400, 34),
        (Submitted(status=Submitted.INVALID_BATCH, reason="not_decodable", message="said"), 400, 35),
        (Submitted(status=Submitted.INVALID_BATCH, reason="batch_not_decodable", message="said"), 400, 35),
        (Submitted(status=Submitted.INVALID_BATCH, reason="transaction_not_decodable", message="said"), 400, 35),
        (Submitted(status=Submitted.INVALID_BATCH, reason="too_large", message="said"), 413, 36),
        (Submitted(status=Submitted.QUEUE_FULL, message="said"), 429, 31),
        (Submitted(status=Submitted.INTERNAL_ERROR, reason="not_ready", message="said"), 503, 15),
        (Submitted(status=Submitted.INTERNAL_ERROR, reason="storage_failed", message="said"), 503, 10),
        (Submitted(status=Submitted.INTERNAL_ERROR, message="said"), 500, 10),
    ],
)
def test_the_validators_refusal_becomes_its_code(answer: Submitted, status: int, code: int) -> None:
    async def test() -> None:
        async with running_api() as api:
            api.validator.answer(Type.CLIENT_BATCH_SUBMIT_REQUEST, Type.CLIENT_BATCH_SUBMIT_RESPONSE, answer)
            response = await api.http.post("/batches", content=BODY, headers={**OCTETS, "x-request-id": "lost-8"})
            bug = "the validator answered said (request lost-8)"
            assert error_of(response) == (status, code, bug if status == 500 else "said")
            assert response.headers.get("retry-after") == ("1" if status in (429, 503) else None)

    run(test())


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/octet-stream; charset=utf-8", 202),
        ("Application/Octet-Stream", 202),
        ("application/json", 400),
        ("", 400),
        ("application/octet-streams", 400),
    ],
)
def test_post_batches_wants_an_octet_stream(content_type: str, status: int) -> None:
    async def test() -> None:
        async with running_api() as api:
            accept(api)
            response = await api.http.post("/batches", content=BODY, headers={"content-type": content_type})
            assert response.status_code == status
            assert status == 202 or error_of(response)[1] == 42

    run(test())


def test_an_empty_body_holds_no_batches() -> None:
    async def test() -> None:
        async with running_api() as api:
            response = await api.http.post("/batches", headers=OCTETS)
            assert error_of(response)[:2] == (400, 34)
            assert api.validator.asked.empty()

    run(test())


def test_a_negative_wait_is_refused_before_the_batches_are_submitted() -> None:
    async def test() -> None:
        async with running_api() as api:
            response = await api.http.post("/batches?wait=-1", content=BODY, headers=OCTETS)
            assert error_of(response)[:2] == (400, 55)
            assert api.validator.asked.empty()

    run(test())


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_over_the_limit_is_refused_before_its_end_is_read(announced: bool) -> None:
    async def test() -> None:
        sent = 0

        class Body(httpx.AsyncByteStream):
            async def __aiter__(self):  # type: ignore[no-untyped-def]
                nonlocal sent
                for _ in range(100):
                    sent += 1
                    yield b"x" * 100

        headers = OCTETS | ({"content-length": "10000"} if announced else {"transfer-encoding": "chunked"})
        async with running_api(config=RestConfig(limits=Limits(body_bytes_max=1000))) as api:
            request = httpx.Request("POST", "http://node:8080/batches", headers=headers, stream=Body())
            response = await api.http.send(request)
            assert error_of(response)[:2] == (413, 36)
            assert sent == (0 if announced else 11)
            assert api.validator.asked.empty()

    run(test())


def test_get_batch_status_answers_in_the_order_asked_with_details() -> None:
    async def test() -> None:
        async with running_api() as api:
            set_statuses(
                api,
                Status(batch_id=TWO.id, status=Status.PENDING, reason="waiting_for_dependency", dependency="d" * 128),
                Status(
                    batch_id=ONE.id,
                    status=Status.PENDING,
                    reason="waiting_for_processor",
                    family_name="intkey",
                    family_version="1.0",
                ),
            )
            path = f"/batch_status?id={ONE.id},{TWO.id}&id=nonsense&id={ONE.id}"
            response = await api.http.get(path)
            assert response.status_code == 200
            assert list(response.json()) == ["data", "details", "link"]
            assert list(response.json()["data"].items()) == [
                (ONE.id, "PENDING"),
                (TWO.id, "PENDING"),
                ("nonsense", "UNKNOWN"),
            ]
            assert response.json()["details"] == {
                ONE.id: {"reason": "waiting_for_processor", "family_name": "intkey", "family_version": "1.0"},
                TWO.id: {"reason": "waiting_for_dependency", "dependency": "d" * 128},
                "nonsense": {"reason": "not_an_id"},
            }
            assert response.json()["link"] == f"http://node:8080{path}"
            question = StatusRequest.FromString(await asked_of(api, Type.CLIENT_BATCH_STATUS_REQUEST))
            assert (list(question.batch_ids), question.wait) == ([ONE.id, TWO.id], False)

    run(test())


def test_strings_that_are_no_ids_are_unknown_and_not_sent() -> None:
    async def test() -> None:
        async with running_api() as api:
            response = await api.http.get("/batch_status?id=x,%00,%ff&wait=5")
            assert set(response.json()["data"].values()) == {"UNKNOWN"}
            assert api.validator.asked.empty()

    run(test())


@pytest.mark.parametrize("query", ["", "?id=", "?id=,,&id", "?id=" + ",".join(str(number) for number in range(1001))])
def test_get_batch_status_without_usable_ids_is_66(query: str) -> None:
    async def test() -> None:
        async with running_api() as api:
            assert error_of(await api.http.get(f"/batch_status{query}"))[:2] == (400, 66)

    run(test())


def test_post_batch_status_takes_a_json_array_and_gives_no_link() -> None:
    async def test() -> None:
        async with running_api() as api:
            set_statuses(api, Status(batch_id=ONE.id, status=Status.COMMITTED))
            body = msgspec.json.encode([ONE.id, TWO.id])
            headers = {"content-type": "application/json; charset=utf-8"}
            response = await api.http.post("/batch_status?wait=3", content=body, headers=headers)
            assert response.json() == {"data": {ONE.id: "COMMITTED", TWO.id: "UNKNOWN"}}
            question = StatusRequest.FromString(await asked_of(api, Type.CLIENT_BATCH_STATUS_REQUEST))
            assert (question.wait, question.timeout) == (True, 3)
            response = await api.http.post("/batch_status", content=body, headers=OCTETS)
            assert error_of(response)[:2] == (400, 43)

    run(test())


@pytest.mark.parametrize(
    "body",
    [
        *[b"", b"[]", b"{}", b'"x"', b"[1]", b"[null]", b"[" * 100_000, b'["\\ud800"', b"\xff\xfe", b'["a"]x', b"null"],
        msgspec.json.encode([str(number) for number in range(1001)]),
    ],
)
def test_a_bad_status_request_is_46(body: bytes) -> None:
    async def test() -> None:
        async with running_api() as api:
            headers = {"content-type": "application/json"}
            assert error_of(await api.http.post("/batch_status", content=body, headers=headers))[:2] == (400, 46)

    run(test())


def test_more_batches_than_one_status_request_may_name_need_several() -> None:
    async def test() -> None:
        async with running_api(config=RestConfig(limits=Limits(status_ids_max=1))) as api:
            accept(api)
            set_statuses(api, *[Status(batch_id=batch.id, status=Status.COMMITTED) for batch in (ONE, TWO)])
            response = await api.http.post("/batches?wait=9", content=BODY, headers=OCTETS)
            assert response.status_code == 201
            for batch in (ONE, TWO):
                question = StatusRequest.FromString(await asked_of(api, Type.CLIENT_BATCH_STATUS_REQUEST))
                assert list(question.batch_ids) == [batch.id]

    run(test())


@pytest.mark.parametrize(("query", "committed"), [("", 0), ("?wait=1", 1), ("?wait=1", 2)])
def test_a_link_names_no_more_batches_than_one_request_may(query: str, committed: int) -> None:
    async def test() -> None:
        async with running_api(config=RestConfig(limits=Limits(status_ids_max=1))) as api:
            accept(api)
            set_statuses(api, *[Status(batch_id=batch.id, status=Status.COMMITTED) for batch in (ONE, TWO)[:committed]])
            response = await api.http.post(f"/batches{query}", content=BODY, headers=OCTETS)
            assert response.status_code == (202, 200, 201)[committed]
            link = response.json()["link"]
            assert link == f"http://node:8080/{'batches' if committed == 2 else 'batch_status'}?id={ONE.id}"
            assert (await api.http.get(link.replace("/batches?", "/batch_status?"))).status_code == 200

    run(test())


def test_the_correlation_id_carries_the_request_id() -> None:
    async def test() -> None:
        async with running_api() as api:
            accept(api)
            response = await api.http.post("/batches", content=BODY, headers=OCTETS | {"x-request-id": "order-66"})
            assert response.headers["x-request-id"] == "order-66"
            assert (await api.validator.asked.get()).correlation_id == "order-66.1"

    run(test())


def test_the_body_is_sent_to_the_validator_unchanged() -> None:
    body = BODY + validator_pb2.Message(content=b"unknown field").SerializeToString()

    async def test() -> None:
        async with running_api() as api:
            accept(api)
            await api.http.post("/batches", content=body, headers=OCTETS)
            assert (await api.validator.asked.get()).content == body

    run(test())


def test_a_failed_status_request_has_the_validators_message() -> None:
    async def test() -> None:
        async with running_api() as api:
            content = StatusResponse(status=StatusResponse.INTERNAL_ERROR, message="it is damaged")
            api.validator.answer(Type.CLIENT_BATCH_STATUS_REQUEST, Type.CLIENT_BATCH_STATUS_RESPONSE, content)
            response = await api.http.get(f"/batch_status?id={ONE.id}", headers={"x-request-id": "lost-9"})
            assert error_of(response) == (500, 10, "it is damaged (request lost-9)")

    run(test())


def test_post_batch_status_takes_no_more_bytes_than_its_ids_need() -> None:
    async def test() -> None:
        async with running_api() as api:
            limits = RestConfig().limits
            longest = 64 * 1024 + limits.status_ids_max * 256
            headers = {"content-type": "application/json"}
            body = b"[" + b" " * (longest - 3) + b"1]"
            assert error_of(await api.http.post("/batch_status", content=body, headers=headers))[:2] == (400, 46)
            assert error_of(await api.http.post("/batch_status", content=body + b" ", headers=headers))[:2] == (413, 36)

    run(test())
