"""Views of resources."""

import msgspec
import pytest

from dovetail.rest_api.answers.pieces import PIECE_BYTES
from tests.dovetail.rest_api.support import ListResponse, Type, make_batch, make_block, run, running_api


@pytest.mark.parametrize("transactions", [1, 300])
def test_small_and_large_resources_have_the_same_json(transactions: int) -> None:
    """Encoding in pieces gives the same JSON as encoding at once."""

    async def test() -> None:
        batches = [make_batch(*[f"{batch}-{number}" * 20 for number in range(transactions)]) for batch in range(2)]
        _, block = make_block(1, *batches)
        assert (len(block) > PIECE_BYTES) == (transactions > 1)
        async with running_api() as api:
            answer = ListResponse(status=ListResponse.OK, head_id="f" * 128, items=[block, block], total_count=2)
            api.validator.answer(Type.LIST_REQUEST, Type.LIST_RESPONSE, answer)
            response = await api.http.get("/blocks")
            assert response.headers["content-length"] == str(len(response.content))
            # This is the output of the encoder for a whole document.
            assert msgspec.json.encode(response.json()) == response.content
            for shown in response.json()["data"]:
                assert list(shown) == ["header", "header_signature", "batches"]
                assert [entry["header_signature"] for entry in shown["batches"]] == [batch.id for batch in batches]
                for entry in shown["batches"]:
                    ids = [transaction["header_signature"] for transaction in entry["transactions"]]
                    assert ids == entry["header"]["transaction_ids"]
                    assert len(ids) == transactions

    run(test())
