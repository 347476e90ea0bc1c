"""Whatever a client puts into paths, queries, headers and bodies: an answer in the API's own shape, never a 500."""

import asyncio
from urllib.parse import quote

import httpx
from hypothesis import given, settings
from hypothesis import strategies as st

from protos import client_batch_pb2, client_block_pb2, client_transaction_pb2
from tests.rest_api.support import Answer, ListResponse, StatusResponse, Submitted, Type, running_api

PATHS = [
    "/",
    "/batches",
    "/batches/{}",
    "/batch_status",
    "/state",
    "/state/{}",
    "/blocks",
    "/blocks/{}",
    "/transactions",
    "/transactions/{}",
    "/{}",
]
NAMES = ["head", "count", "min", "max", "id", "wait", "address", "sort", "fields", "omit", "callback", "", "\0", "é"]
VALUES = st.one_of(
    st.text(max_size=20),
    st.integers().map(str),
    st.integers(0, 2**70).map(str),
    st.sampled_from(["false", "", "0", "-0", "+1", "٣", "1" * 10_000, str(10**30), "a" * 128, "1" * 128, "a" * 70]),
)
RAW = st.binary(max_size=40).map(lambda raw: quote(raw, safe="&=+;%,/"))
QUERIES = st.one_of(
    st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=6).map(
        lambda pairs: "&".join(f"{quote(name)}={quote(value)}" for name, value in pairs)
    ),
    RAW,
)
HEADERS = st.dictionaries(
    st.sampled_from(
        ["content-type", "content-length", "x-request-id", "forwarded", "x-forwarded-host", "host", "expect"]
    ),
    st.one_of(
        st.text(st.characters(codec="latin-1", exclude_categories=["Cc"]), max_size=30),
        st.sampled_from(["application/octet-stream", "application/json", "9" * 5000, "host=x;proto=https"]),
    ),
    max_size=4,
)

ANSWERS: dict[int, tuple[int, Answer]] = {
    Type.LIST_REQUEST: (Type.LIST_RESPONSE, lambda _: ListResponse(status="OK", head_id="f" * 128)),
    Type.CLIENT_BATCH_SUBMIT_REQUEST: (
        Type.CLIENT_BATCH_SUBMIT_RESPONSE,
        lambda _: Submitted(status="OK", batch_ids=["b" * 128]),
    ),
    Type.CLIENT_BATCH_STATUS_REQUEST: (Type.CLIENT_BATCH_STATUS_RESPONSE, lambda _: StatusResponse(status="OK")),
    Type.CLIENT_BLOCK_GET_BY_ID_REQUEST: (
        Type.CLIENT_BLOCK_GET_RESPONSE,
        lambda _: client_block_pb2.ClientBlockGetResponse(status="NO_RESOURCE"),
    ),
    Type.CLIENT_BLOCK_GET_BY_NUM_REQUEST: (
        Type.CLIENT_BLOCK_GET_RESPONSE,
        lambda _: client_block_pb2.ClientBlockGetResponse(status="NO_RESOURCE"),
    ),
    Type.CLIENT_BATCH_GET_REQUEST: (
        Type.CLIENT_BATCH_GET_RESPONSE,
        lambda _: client_batch_pb2.ClientBatchGetResponse(status="NO_RESOURCE"),
    ),
    Type.CLIENT_TRANSACTION_GET_REQUEST: (
        Type.CLIENT_TRANSACTION_GET_RESPONSE,
        lambda _: client_transaction_pb2.ClientTransactionGetResponse(status="NO_RESOURCE"),
    ),
}


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    method=st.sampled_from(["GET", "POST", "HEAD", "OPTIONS", "PUT", "TRACE"]),
    path=st.sampled_from(PATHS),
    part=st.one_of(VALUES.map(lambda text: quote(text, safe="")), RAW.map(lambda text: text.replace("/", ""))),
    query=QUERIES,
    headers=HEADERS,
    body=st.one_of(st.binary(max_size=200), st.sampled_from([b'["a"]', b"[", b"\x0a\x02\x0a\x00"])),
)
def test_no_request_is_answered_with_500(
    method: str, path: str, part: str, query: str, headers: dict[str, str], body: bytes
) -> None:
    async def ask() -> httpx.Response:
        async with running_api(ANSWERS) as api:
            raw_path = f"{path.format(part)}?{query}".encode()
            url = httpx.URL("http://node:8080").copy_with(raw_path=raw_path)
            raw_headers = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
            return await api.http.send(httpx.Request(method, url, headers=raw_headers, content=body))

    response = asyncio.run(ask())
    assert response.status_code < 500, response.text
    assert response.headers["x-request-id"]
    if response.status_code >= 400 and method != "HEAD":
        assert list(response.json()["error"]) == ["code", "title", "message"]
