"""Rows on every answer: form, request id, methods, unknown paths, parameters without effect.

Rules of one resource do not belong here.
"""

from functools import partial
from typing import Final

from tests.conformance.table import Row, get, members, row, rule, status
from tests.conformance.wire import Answer, Request
from tests.conformance.world import JSON, OCTETS, World
from tests.system.independent.client import make_batch_list

LISTS: Final = ("/blocks", "/batches", "/transactions", "/state")
SINGLES: Final = ("/blocks/{block}", "/batches/{batch}", "/transactions/{transaction}", "/state/{address}")
NODE: Final = (
    "/stats/validator", "/stats/gossip", "/status/config", "/status/families", "/status/processors", "/status/system",
)  # fmt: skip
WITH_POST: Final = ("/batches", "/batch_status")
ROUTES: Final = ("/", "/batch_status?id={batch}", *LISTS, *SINGLES, *NODE)
PLAIN: Final = ("/healthz", "/readyz", "/metrics", "/docs", "/openapi.json")
REFUSED: Final = ("/blocks/nothing", "/blocks?count=0", "/state/xyz", "/batch_status", "/nothing/here")

ROWS: list[Row] = []


def _echoes_the_id(world: World, route: str) -> None:
    answer = world.http.get(world.fill(route), ("X-Request-Id", f"conformance-{world.run}"))
    assert answer.headers["x-request-id"] == f"conformance-{world.run}"


ROWS += [
    Row(
        f"api/every/request-id{route}",
        "every answer, including errors, carries the caller's X-Request-Id",
        partial(_echoes_the_id, route=route),
    )
    for route in (*ROUTES, *PLAIN, *REFUSED)
]


@rule(ROWS, "api/every/request-id-fresh", "a caller without X-Request-Id gets a fresh one each time")
def _(world: World) -> None:
    ids = {world.http.get(path).headers["x-request-id"] for path in ("/", "/", "/blocks", "/nothing", "/blocks/x")}
    assert len(ids) == 5


@rule(ROWS, "api/every/request-id-methods", "X-Request-Id comes with HEAD, OPTIONS, POST and refused methods too")
def _(world: World) -> None:
    for request in (
        Request("HEAD", "/blocks"), Request("OPTIONS", "/blocks"), Request("DELETE", "/blocks"),
        Request("POST", "/batches", (OCTETS,), b""), Request("POST", "/batches", (), b"x"),
    ):  # fmt: skip
        answer = world.http.ask(request._replace(headers=(*request.headers, ("X-Request-Id", "mine"))))
        assert answer.headers["x-request-id"] == "mine"


ROWS += [
    row(
        f"api/every/json{route}",
        "answers are JSON in UTF-8",
        get(route),
        status(200),
        lambda answer, _: _is_json(answer),
    )
    for route in ROUTES
]


def _is_json(answer: Answer) -> None:
    assert answer.headers["content-type"].split(";")[0] == "application/json"
    answer.body.decode("utf-8")
    assert isinstance(answer.json, dict)


@rule(ROWS, "api/every/utf-8", "text beyond ASCII comes back as UTF-8")
def _(world: World) -> None:
    answer = world.http.get("/blocks/%C3%A9t%C3%A9")
    assert "été" in answer.body.decode("utf-8")


ROWS += [
    row(f"api/every/member-order{route}", "a list has data, head, link, paging in this order", get(route),
        members("data", "head", "link", "paging"))
    for route in (*LISTS, "/state/{prefix}")
] + [
    row(f"seed/envelope{route}", "a single resource has data, head and link", get(route),
        members("data", "head", "link"))
    for route in SINGLES
]  # fmt: skip


# Methods


def _head_is_get(world: World, route: str) -> None:
    target = world.fill(route)
    answered, headed = world.http.get(target), world.http.ask(Request("HEAD", target))
    assert headed.status == answered.status
    assert headed.body == b""
    assert headed.headers.get("content-type") == answered.headers.get("content-type")


for _route in (*ROUTES, *PLAIN, *REFUSED):
    ROWS.append(
        Row(f"api/every/head{_route}", "HEAD gives GET's answer without a body", partial(_head_is_get, route=_route))
    )


def _options(answer: Answer, _: World) -> None:
    assert answer.status in (200, 204)
    path = answer.request.target.partition("?")[0]
    allowed = {"GET", "HEAD", "OPTIONS"} | ({"POST"} if path in WITH_POST else set())
    assert {method.strip() for method in answer.headers["allow"].split(",")} == allowed


def _refused_method(answer: Answer, world: World) -> None:
    assert (answer.status, answer.error["code"]) == (405, 405)
    path = answer.request.target.partition("?")[0]
    allowed = {"GET", "HEAD", "OPTIONS"} | ({"POST"} if path in WITH_POST else set())
    assert {method.strip() for method in answer.headers["allow"].split(",")} == allowed
    assert answer.request.method in answer.error["message"]


for _route in (*ROUTES, *PLAIN):
    ROWS.append(row(f"api/every/options{_route}", "OPTIONS says what is allowed", Request("OPTIONS", _route), _options))
    for _method in ("PUT", "DELETE", "PATCH") + (() if _route.partition("?")[0] in WITH_POST else ("POST",)):
        ROWS.append(
            row(f"api/every/405{_route}/{_method}", "a known path with another method is 405 with Allow",
                Request(_method, _route), _refused_method)
        )  # fmt: skip


def _not_found(answer: Answer, _: World) -> None:
    assert (answer.status, answer.error["code"]) == (404, 404)
    assert answer.error["title"] == "Not Found"


ROWS += [
    row(f"api/every/404{path}/{method}", "an unknown path is 404 in the error shape", Request(method, path), _not_found)
    for method, path in (
        ("GET", "/nothing"), ("GET", "/blocks/"), ("GET", "/blocks/1/2"), ("GET", "/batch"), ("GET", "/stats"),
        ("POST", "/batch"), ("DELETE", "/no"), ("HEAD", "/headless"), ("OPTIONS", "/optionless"), ("GET", "//blocks"),
        ("GET", "/BLOCKS"),
    )
    if method != "HEAD" and method != "OPTIONS"
] + [
    row(f"api/every/404/{method}", "an unknown path is 404 for every method", Request(method, "/nothing"), status(404))
    for method in ("HEAD", "OPTIONS", "PUT")
] + [
    row(f"seed/versioning/3/{version}", "paths carry no version segment", get(f"/{version}/blocks"), _not_found)
    for version in ("v1", "1.0", "api/v1")
]  # fmt: skip


@rule(ROWS, "api/every/no-http", "a request that is no HTTP or whose head is too long gets an error body")
def _(world: World) -> None:
    for data in (b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"x" * 2_000_000):
        with world.http.raw() as raw:
            raw.send_bytes(data)
            answer = raw.answer()
        assert answer.status == 400
        assert answer.headers["x-request-id"]


# Parameters without effect


def _same_without(world: World, route: str, added: str) -> None:
    target = world.fill(route)
    joint = "&" if "?" in target else "?"
    plain, changed = world.http.get(target), world.http.get(f"{target}{joint}{added}")
    assert plain.status == changed.status == 200
    assert plain.json["data"] == changed.json["data"]


for _route in (*(f"{path}?head={{head}}&count=3" for path in LISTS), *SINGLES, "/status/config", "/status/system"):
    for _added in ("sort=-header_signature", "fields=header", "omit=header,data"):
        if _route == "/status/system":
            ROWS.append(row(f"seed/service/7{_route}/{_added}", "sort, fields and omit have no effect",
                            get(f"{_route}?{_added}"), lambda answer, _: _has_all(answer)))  # fmt: skip
            continue
        ROWS.append(
            Row(
                f"seed/service/7{_route}/{_added}",
                "sort, fields and omit are accepted and have no effect",
                partial(_same_without, route=_route, added=_added),
            )
        )


def _has_all(answer: Answer) -> None:
    assert answer.status == 200
    assert {"local_time", "percent_cpu", "percent_memory", "network_rx", "network_tx"} <= set(answer.json["data"])


@rule(ROWS, "seed/service/7/callback", "callback is accepted by POST /batches and has no effect")
def _(world: World) -> None:
    answer = world.post(world.new(), query="?callback=http%3A%2F%2F127.0.0.1%3A9%2F")
    assert answer.status == 202


# Authentication and bodies


@rule(ROWS, "seed/auth/1", "credentials have no effect: the API does no authentication")
def _(world: World) -> None:
    for value in ("Basic bm9ib2R5Om5vdGhpbmc=", "Bearer x", "nonsense"):
        target = world.fill("/batches/{batch}")
        answers = [world.http.get(target, *headers).json for headers in ([("Authorization", value)], [])]
        assert answers[0]["data"] == answers[1]["data"]


def _posted(target: str, content: bytes, kind: tuple[tuple[str, str], ...], code: int) -> Row:
    def check(answer: Answer, _: World) -> None:
        assert (answer.status, answer.error["code"]) == (400, code)
        assert answer.error["title"] == "Wrong Content Type"
        assert (OCTETS if code == 42 else JSON)[1] in answer.error["message"]

    shown = kind[0][1] if kind else "absent"
    return row(f"api/errors/{code}/{shown}", "a body of another content type is refused",
               Request("POST", target, kind, content), check)  # fmt: skip


ROWS += [
    _posted("/batches", b"\x0a\x00", kind, 42)
    for kind in ((), (JSON,), (("Content-Type", "text/plain"),), (("Content-Type", "application/octet-streams"),))
] + [
    _posted("/batch_status", b'["x"]', kind, 43)
    for kind in ((), (OCTETS,), (("Content-Type", "text/json"),), (("Content-Type", "application/jsonp"),))
]  # fmt: skip


@rule(ROWS, "api/errors/42/parameters", "application/octet-stream may have parameters, in any case of letters")
def _(world: World) -> None:
    for kind in ("application/octet-stream; charset=utf-8", "Application/Octet-Stream", "application/octet-stream;x=1"):
        body = make_batch_list([world.new()])
        assert world.http.ask(Request("POST", "/batches", (("Content-Type", kind),), body)).status == 202


@rule(ROWS, "api/errors/43/parameters", "application/json may have parameters, in any case of letters")
def _(world: World) -> None:
    for kind in ("application/json; charset=utf-8", "Application/JSON"):
        answer = world.http.ask(Request("POST", "/batch_status", (("Content-Type", kind),), b'["x"]'))
        assert answer.status == 200
