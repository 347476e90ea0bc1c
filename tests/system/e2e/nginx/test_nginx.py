"""The proxy of the specification (Authentication): the password, answers equal to direct ones, links, many REST APIs.

The real nginx runs deploy/nginx's configuration. ``test_refusals`` has nginx's own refusals.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from dovetail.rest_api.routes import ENDPOINTS
from tests.system.e2e.clients import Api, Author, error_of
from tests.system.e2e.conftest import Networks, Shared
from tests.system.e2e.network import ReservedPort
from tests.system.e2e.nginx.conftest import Proxies
from tests.system.e2e.nginx.proxy import Proxy
from tests.system.e2e.process import DEADLINE_S, Process
from tests.system.e2e.script_family import Gate, ScriptHandler, script
from tests.system.independent.client import make_batch_list

NOW = ("/stats/", "/status/", "/metrics")
"""Paths whose answers depend on the moment, so that no two are equal."""

HOP_HEADERS = {"date", "server", "connection", "x-request-id", "content-length", "transfer-encoding"}


@pytest.fixture
def committed(shared: Shared, author: Author, named: Callable[[str], str]) -> list[str]:
    """The ids of three batches in blocks of their own."""
    batches = [author.batch(author.intkey("set", named(str(number)), number)) for number in range(3)]
    for batch in batches:
        shared.api.commit(batch)
    return [batch.id for batch in batches]


def kept_headers(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name not in HOP_HEADERS}


def shape(value: object) -> object:
    """``value`` with its numbers and texts left out."""
    if isinstance(value, dict):
        return {name: shape(member) for name, member in value.items()}
    return [shape(member) for member in value] if isinstance(value, list) else type(value).__name__


class TestPassword:
    """Specification, Authentication 2: the proxy answers a request without credentials with 401."""

    @pytest.mark.parametrize("auth", [None, ("alice", "wrong"), ("alice", ""), ("bob", "unknown")])
    @pytest.mark.parametrize("path", ["/blocks", "/", "/no-such-path", "/metrics", "/readyz", "/healthz/x"])
    def test_without_the_right_one_401(self, either: Proxy, path: str, auth: tuple[str, str] | None) -> None:
        with either.client(auth) as client:
            answer = client.get(path, headers={"X-Request-Id": "mine-1"})
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == 'Basic realm="Dovetail"'
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-request-id"] == "mine-1"
        assert error_of(answer)["code"] == 401

    @pytest.mark.parametrize("user", ["alice", "robot"])
    def test_each_kind_of_hash_lets_its_user_in(self, either: Proxy, user: str) -> None:
        with either.client(either.auth_of(user)) as client:
            assert client.get("/blocks").status_code == 200
        with either.client(("robot" if user == "alice" else "alice", either.auth_of(user)[1])) as client:
            assert client.get("/blocks").status_code == 401

    def test_nothing_is_handed_in_without_it(self, either: Proxy, shared: Shared, author: Author) -> None:
        batch = author.batch(author.intkey("set", "never", 1))
        with either.client(("alice", "wrong")) as client:
            answer = client.post(
                "/batches", content=make_batch_list([batch]), headers={"Content-Type": "application/octet-stream"}
            )
        assert answer.status_code == 401
        assert shared.api.words(batch) == ["UNKNOWN"]

    def test_health_needs_none(self, either: Proxy, shared: Shared) -> None:
        with either.client(None) as client:
            answer = client.get("/healthz")
        assert answer.status_code == 200
        assert answer.text == shared.api.http.get("/healthz").text.replace(shared.network.rest_url, either.url)


class TestSameAnswers:
    """Specification, Authentication 2: with credentials, the API's own answer, but with the proxy's URL in its link."""

    @pytest.mark.parametrize("path", [endpoint.path for endpoint in ENDPOINTS if "GET" in endpoint.handlers])
    def test_every_route(
        self, either: Proxy, through: Api, shared: Shared, committed: list[str], path: str
    ) -> None:  # fmt: skip
        (transaction,) = shared.api.get(f"/batches/{committed[0]}")["data"]["transactions"]
        url = path.format(
            block_id="1",
            batch_id=committed[0],
            transaction_id=transaction["header_signature"],
            address=transaction["header"]["outputs"][0],
        )
        params = {"id": ",".join(committed)} if path == "/batch_status" else {}
        direct, proxied = (api.http.get(url, params=params) for api in (shared.api, through))
        assert direct.status_code == proxied.status_code == 200
        assert kept_headers(direct) == kept_headers(proxied)
        expected = direct.text.replace(shared.network.rest_url, either.url)
        if not path.startswith(NOW):
            assert proxied.text == expected
        elif path != "/metrics":
            assert shape(proxied.json()) == shape(direct.json())
            assert proxied.json().get("link") == json.loads(expected).get("link")
        assert shared.network.rest_url not in proxied.text

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("GET", "/blocks?count=0"),
            ("GET", "/blocks/no%20block%2f%C3%A9"),
            ("GET", "/no-such-path"),
            ("DELETE", "/blocks"),
            ("OPTIONS", "/batches"),
            ("HEAD", "/blocks"),
            ("GET", "/batches?id=none,neither&fields=x%26y&sort=-a%20b"),
            ("GET", "/state?address=00&count=1"),
            ("POST", "/batches"),
            ("POST", "/batch_status"),
        ],
    )
    def test_refusals_and_odd_requests(
        self, either: Proxy, through: Api, shared: Shared, method: str, path: str
    ) -> None:  # fmt: skip
        direct, proxied = (api.http.request(method, path) for api in (shared.api, through))
        assert direct.status_code == proxied.status_code
        assert kept_headers(direct) == kept_headers(proxied)
        assert proxied.text == direct.text.replace(shared.network.rest_url, either.url)

    @pytest.mark.parametrize("comma", [",", "%2C"])
    def test_a_thousand_ids_in_the_url(self, either: Proxy, comma: str) -> None:
        ids = [f"{number:0128x}" for number in range(1000)]
        line = f"GET {either.prefix}/batch_status?id={comma.join(ids)} HTTP/1.1"
        status, body = either.ask(f"{line}\r\nHost: {either.bind}\r\nConnection: close\r\n")
        assert status == 200, body
        assert list(json.loads(body)["data"]) == ids


class TestLinks:
    """API.md, Behind a proxy: links of lists and submissions show the proxy's URL and can be followed."""

    @pytest.mark.parametrize("kind", ["blocks", "batches", "transactions", "state"])
    def test_pages_lead_to_both_ends_and_back(
        self, either: Proxy, through: Api, shared: Shared, committed: list[str], kind: str
    ) -> None:
        whole = shared.api.get(f"/{kind}", count=1000)
        assert len(whole["data"]) == whole["paging"]["total_count"] > 3
        count = len(whole["data"]) // 4
        forward = self.walk(either, through, f"{either.url}/{kind}?head={whole['head']}&count={count}", "next")
        assert [item for page in forward for item in page["data"]] == whole["data"]
        back = self.walk(either, through, forward[-1]["paging"]["previous"], "previous")
        assert [item for page in reversed(back) for item in page["data"]] == whole["data"][: -len(forward[-1]["data"])]

    def walk(self, proxy: Proxy, api: Api, url: str, direction: str) -> list[dict[str, Any]]:
        pages = []
        while url:
            assert url.startswith(f"{proxy.url}/")
            pages.append(api.get(url))
            assert api.get(pages[-1]["link"]) == pages[-1]
            url = pages[-1]["paging"].get(direction, "")
        return pages

    def test_links_of_handing_in(
        self, either: Proxy, through: Api, author: Author, named: Callable[[str], str]
    ) -> None:  # fmt: skip
        first, second = (author.batch(author.intkey("set", named(name), 1)) for name in "ab")
        answer = through.post(first, wait=int(DEADLINE_S))
        assert answer.status_code == 201, answer.text
        assert answer.json() == {"link": f"{either.url}/batches?id={first.id}"}
        assert [batch["header_signature"] for batch in through.get(answer.json()["link"])["data"]] == [first.id]
        answer = through.post(second)
        assert answer.status_code == 202, answer.text
        assert answer.json() == {"link": f"{either.url}/batch_status?id={second.id}"}
        # The wait is longer than the client's timeout, so the answer must come with the verdict.
        told = through.get(f"{answer.json()['link']}&wait={int(DEADLINE_S) * 10}")
        assert told["data"] == {second.id: "COMMITTED"}


class TestComingAndGoing:
    """The REST API keeps no state: several may run, any of them may end, and waiting clients may leave."""

    def test_a_client_that_leaves_is_not_waited_for(
        self, either: Proxy, shared: Shared, author: Author, gate: Gate
    ) -> None:  # fmt: skip
        batch = author.batch(author.transaction(ScriptHandler.family_name, script(("hold", gate.port))))
        body = make_batch_list([batch])
        connection = either.send(
            f"POST {either.prefix}/batches?wait=300 HTTP/1.1\r\nHost: {either.bind}\r\nX-Request-Id: {batch.id}\r\n"
            f"Content-Type: application/octet-stream\r\nContent-Length: {len(body)}\r\n",
            body,
        )
        gate.wait()
        connection.close()
        shared.up.wait_logged("client left before its answer", request_id=batch.id)
        gate.open()
        assert shared.api.settle(batch) == ["COMMITTED"]

    def test_a_node_that_restarts(
        self, proxies: Proxies, networks: Networks, author: Author, named: Callable[[str], str]
    ) -> None:
        network = networks()
        up = network.up()
        api = proxies([network.rest_bind]).api()
        api.commit(author.batch(author.intkey("set", named("n"), 1)))
        before = api.get("/blocks")
        assert up.terminate() == 0
        assert api.http.get("/blocks").status_code == 502
        network.up()
        assert api.get("/blocks") == before
        api.commit(author.batch(author.intkey("inc", named("n"), 1)))
        assert api.intkey(named("n")) == 2
        api.close()

    def test_one_of_two_rest_apis_is_killed(
        self, proxies: Proxies, shared: Shared, author: Author, named: Callable[[str], str]
    ) -> None:
        with _two_rest_apis(shared) as started:
            api = proxies(list(started)).api()
            for _ in range(8):
                api.get("/blocks", count=1)
            for process in started.values():
                process.wait_logged("request", path="/blocks")
            next(iter(started.values())).kill()
            for number in range(8):
                api.get("/blocks", count=1)
                verb = "inc" if number else "set"
                api.commit(author.batch(author.intkey(verb, named("n"), 1)))
            assert api.intkey(named("n")) == 8
            api.close()


@contextmanager
def _two_rest_apis(shared: Shared) -> Iterator[dict[str, Process]]:
    """Two more REST APIs at the session's validator, by address."""
    ports = [ReservedPort(), ReservedPort()]
    words = ("rest-api", "--validator", shared.network.validator_url, "--bind")
    started = {
        f"127.0.0.1:{port.number}": shared.network.start(*words, f"127.0.0.1:{port.number}") for port in ports
    }  # fmt: skip
    try:
        for process in started.values():
            process.wait_logged("ready")
        yield started
    finally:
        for process in started.values():
            process.close()
        for port in ports:
            port.close()
