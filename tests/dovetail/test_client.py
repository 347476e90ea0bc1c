"""The HTTP client against answers that a transport gives."""

import json
from collections.abc import Callable
from urllib.parse import parse_qs

import httpx
import pytest

from dovetail.client import ApiError, DovetailClient
from dovetail.errors import Refused
from ledger.building import SignedBatch
from ledger.ids import BatchId
from protos import batch_pb2

Answer = Callable[[httpx.Request], httpx.Response]

_BATCH = SignedBatch(BatchId("ab" * 64), batch_pb2.Batch(header_signature="ab" * 64).SerializeToString())


def _client(answer: Answer) -> DovetailClient:
    return DovetailClient("http://node:8080/ledger/", transport=httpx.MockTransport(answer))


def test_an_accepted_batch_is_pending() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert str(request.url) == "http://node:8080/ledger/batches"
        assert request.headers["Content-Type"] == "application/octet-stream"
        assert batch_pb2.BatchList.FromString(request.content).batches[0].header_signature == _BATCH.id
        return httpx.Response(202, json={"link": "…"})

    with _client(answer) as client:
        assert client.post_batches([_BATCH])[_BATCH.id] == (_BATCH.id, "PENDING", {})


def test_a_committed_batch() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.params["wait"] == "5"
        assert request.extensions["timeout"]["read"] == 35
        return httpx.Response(201, json={"link": "…"})

    with _client(answer) as client:
        assert client.post_batches([_BATCH], wait_s=5)[_BATCH.id].status == "COMMITTED"


def test_an_invalid_batch_says_why() -> None:
    details = {_BATCH.id: {"reason": "invalid_transaction", "transaction_id": "cd", "message": "no such name"}}

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"data": {_BATCH.id: "INVALID"}, "details": details})

    with _client(answer) as client:
        status = client.post_batches([_BATCH], wait_s=5)[_BATCH.id]
    assert status.why == "invalid_transaction no such name (transaction cd)"


@pytest.mark.parametrize(("count", "method"), [(15, "GET"), (16, "POST")])
def test_many_ids_travel_in_the_body(count: int, method: str) -> None:
    ids = [f"{number:0128x}" for number in range(count)]

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.method == method
        asked = json.loads(request.content) if method == "POST" else request.url.params["id"].split(",")
        return httpx.Response(200, json={"data": dict.fromkeys(asked, "UNKNOWN")})

    with _client(answer) as client:
        assert list(client.batch_status(ids)) == ids


def test_pages_are_followed_by_the_query_of_their_link() -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        query = parse_qs(request.url.query.decode())
        asked.append(query)
        assert request.url.path == "/ledger/state"
        assert request.url.host == "node"
        start = int(query.get("min", ["0"])[0])
        link = {} if start == 4 else {"next": f"http://inside:1/state?head=ff&min={start + 2}&count=2"}
        items = [{"n": start}, {"n": start + 1}] if start < 4 else [{"n": 4}]
        paging = {"start_index": start, "total_count": 5, **link}
        return httpx.Response(200, json={"data": items, "head": "ff", "link": "", "paging": paging})

    with _client(answer) as client:
        assert [item["n"] for item in client.items("state", address="00", count=2, head=None)] == [0, 1, 2, 3, 4]
    assert asked[0] == {"address": ["00"], "count": ["2"]}
    assert asked[1] == {"head": ["ff"], "min": ["2"], "count": ["2"]}


def test_errors_keep_code_title_and_message() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        error = {"code": 31, "title": "Unable to Accept Batches", "message": "20000 are pending"}
        return httpx.Response(429, json={"error": error}, headers={"Retry-After": "3"})

    with _client(answer) as client, pytest.raises(ApiError) as caught:
        client.post_batches([_BATCH])
    assert (caught.value.status, caught.value.code) == (429, 31)
    assert str(caught.value) == "Unable to Accept Batches: 20000 are pending; try again in 3 s (code 31)"


@pytest.mark.parametrize("content", [b"<html>", b"[]", b'{"error": "no object"}', b"\xff"])
@pytest.mark.parametrize("status", [200, 401, 502])
def test_what_is_not_our_api_is_told_apart(content: bytes, status: int) -> None:
    with _client(lambda _: httpx.Response(status, content=content)) as client, pytest.raises(ApiError) as caught:
        client.resource("blocks", "0")
    assert caught.value.code is None


@pytest.mark.parametrize("body", [{}, {"data": 3, "paging": {}}, {"data": [], "paging": 1}])
def test_a_list_that_is_none(body: object) -> None:
    with _client(lambda _: httpx.Response(200, json=body)) as client, pytest.raises(ApiError, match="Invalid Answer"):
        list(client.items("blocks"))


def test_a_leaf_that_is_no_base64() -> None:
    with (
        _client(lambda _: httpx.Response(200, json={"data": "%%"})) as client,
        pytest.raises(ApiError, match="no base64"),
    ):
        client.leaf("00" * 35)


def test_an_id_is_one_path_segment_whatever_it_holds() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.raw_path == b"/ledger/blocks/..%2Fstate%3Fa"
        return httpx.Response(200, json={"data": {}})

    with _client(answer) as client:
        client.resource("blocks", "../state?a")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (httpx.ConnectError("refused"), r"^nothing answers at http://node:8080/ledger; is `dovetail up` running\?$"),
        (httpx.ReadTimeout("late"), "did not answer within 30 s"),
        (httpx.RemoteProtocolError("cut off"), "the connection to .* broke: cut off"),
    ],
)
def test_trouble_on_the_way_is_one_line(error: httpx.TransportError, reason: str) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        raise error

    with _client(answer) as client, pytest.raises(Refused, match=reason):
        client.resource("blocks", "0")


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://node", "http://", "", "http://[::1", "http://a:b"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(Refused, match="is no URL"):
        DovetailClient(url)
