"""The quota of all answers that are being sent."""

import pytest
import structlog

from dovetail.rest_api.answers.pieces import PIECE_BYTES
from dovetail.rest_api.answers.quota import ByteQuota
from dovetail.rest_api.config import RestConfig
from dovetail.rest_api.errors import ApiError
from tests.dovetail.rest_api.serving import LARGE, seen, served, stuck
from tests.dovetail.rest_api.support import Submitted, Type, error_of, logged, run


def test_a_quota_refuses_what_exceeds_it_except_for_a_single_holder() -> None:
    quota = ByteQuota("bodies", 10)
    quota.reserve(11)
    for size in (1, 11):
        with pytest.raises(ApiError, match=f"holds 11 bytes of bodies already; with {size} more .* limit of 10"):
            quota.reserve(size)
    quota.release(11)
    quota.reserve(4)
    quota.reserve(6)
    quota.reserve(0)
    assert quota.bytes_held == 10
    quota.reserve(1, own=10)
    with pytest.raises(ApiError, match="holds 11 bytes"):
        quota.reserve(1, own=10)


def test_answers_that_are_being_sent_share_one_quota() -> None:
    async def test() -> None:
        async with served(config=RestConfig(answer_bytes_in_flight_max=1_000_000)) as api:
            api.validator.answer(Type.LIST_REQUEST, Type.LIST_RESPONSE, LARGE)
            with structlog.testing.capture_logs() as logs:
                with stuck(api):
                    while (await api.validator.asked.get()).message_type != Type.LIST_REQUEST:
                        pass
                    await seen(api)
                    refused = await api.http.get("/batches")
                    assert error_of(refused)[:2] == (503, 15)
                    assert "limit of 1000000" in refused.text
                    assert refused.headers["retry-after"] == "1"
                    # The quota refuses neither answers that do not read the ledger, nor the answer to a submission.
                    assert (await api.http.head("/batches")).status_code == 200
                    assert (await api.http.get("/openapi.json")).status_code == 200
                    many = Submitted(status=Submitted.OK, batch_ids=[f"{number:0128x}" for number in range(600)])
                    api.validator.answer(Type.CLIENT_BATCH_SUBMIT_REQUEST, Type.CLIENT_BATCH_SUBMIT_RESPONSE, many)
                    headers = {"content-type": "application/octet-stream"}
                    accepted = await api.http.post("/batches", content=b"x", headers=headers)
                    assert (accepted.status_code, len(accepted.content) > PIECE_BYTES) == (202, True)
                    logs.clear()
                await logged(logs, "request")
            assert len((await api.http.get("/batches")).json()["data"]) == 20

    run(test())
