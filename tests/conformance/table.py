"""The form of a row, and helpers for requests and expectations.

Rules do not belong here.
"""

from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from tests.conformance.wire import Answer, Request
from tests.conformance.world import JSON, OCTETS, World

Check = Callable[[Answer, World], None]
ERRORS: Final = {
    10: (500, "Unknown Validator Error"),
    15: (503, "Validator Not Ready"),
    17: (503, "Validator Timed Out"),
    18: (503, "Validator Disconnected"),
    20: (500, "Invalid Validator Response"),
    30: (400, "Submitted Batches Invalid"),
    31: (429, "Unable to Accept Batches"),
    34: (400, "No Batches Submitted"),
    35: (400, "Protobuf Not Decodable"),
    36: (413, "Request Too Large"),
    42: (400, "Wrong Content Type"),
    43: (400, "Wrong Content Type"),
    46: (400, "Bad Status Request"),
    50: (404, "Head Not Found"),
    53: (400, "Invalid Count Query"),
    54: (400, "Invalid Paging Query"),
    55: (400, "Invalid Wait Query"),
    62: (400, "Invalid State Address"),
    66: (400, "Id Query Invalid or Missing"),
    70: (404, "Block Not Found"),
    71: (404, "Batch Not Found"),
    72: (404, "Transaction Not Found"),
    75: (404, "State Not Found"),
}
"""API.md, Errors: HTTP status and title by code."""


class Row(NamedTuple):
    """One rule: its id, its text, and the function that tests it."""

    id: str
    rule: str
    run: Callable[[World], None]


def row(rule_id: str, rule: str, request: Request, *checks: Check) -> Row:
    """A rule that one request tests."""

    def run(world: World) -> None:
        answer = world.http.ask(request._replace(target=world.fill(request.target)))
        for check in checks:
            check(answer, world)

    return Row(rule_id, rule, run)


def rule(table: list[Row], rule_id: str, text: str) -> Callable[[Callable[[World], None]], Callable[[World], None]]:
    """A rule that needs several requests: add the decorated function to the table."""

    def add(run: Callable[[World], None]) -> Callable[[World], None]:
        table.append(Row(rule_id, text, run))
        return run

    return add


def get(target: str, *headers: tuple[str, str]) -> Request:
    return Request("GET", target, headers)


def post(target: str, content: bytes, *headers: tuple[str, str]) -> Request:
    return Request("POST", target, headers, content)


def post_octets(target: str, content: bytes) -> Request:
    return post(target, content, OCTETS)


def post_json(target: str, content: bytes) -> Request:
    return post(target, content, JSON)


def status(wanted: int) -> Check:
    def check(answer: Answer, _: World) -> None:
        assert answer.status == wanted

    return check


def error(code: int, *words: str) -> Check:
    """Expect an error with this code and its status and title.

    Its message must hold ``words`` (``{names}`` filled in).
    """

    def check(answer: Answer, world: World) -> None:
        assert (answer.status, answer.error["code"]) == (ERRORS[code][0], code)
        assert answer.error["title"] == ERRORS[code][1]
        for word in words:
            assert world.fill(word) in answer.error["message"]

    return check


def members(*names: str) -> Check:
    """Expect 200 with exactly these members, in this order."""

    def check(answer: Answer, _: World) -> None:
        assert answer.status == 200
        assert tuple(answer.json) == names

    return check


def link(target: str) -> Check:
    """Expect this target as link, under the URL of the node. Parameters are compared decoded, in order."""

    def check(answer: Answer, world: World) -> None:
        assert_link(answer.json["link"], world.http.url, world.fill(target))

    return check


def assert_link(found: str, base: str, target: str) -> None:
    found_parts, wanted = urlsplit(found), urlsplit(base + target)
    assert (found_parts.scheme, found_parts.netloc, found_parts.path) == (wanted.scheme, wanted.netloc, wanted.path)
    found_pairs, wanted_pairs = (parse_qsl(parts.query, keep_blank_values=True) for parts in (found_parts, wanted))
    assert found_pairs == wanted_pairs


def data_is(text: str) -> Check:
    """Expect one resource with this id as ``data``."""

    def check(answer: Answer, world: World) -> None:
        assert answer.status == 200
        assert answer.json["data"]["header_signature"] == world.fill(text)

    return check


def keys_are(*texts: str) -> Check:
    """Expect a list of the items with these ids as ``data``, in this order."""

    def check(answer: Answer, world: World) -> None:
        assert answer.status == 200
        assert [item["header_signature"] for item in answer.json["data"]] == [world.fill(text) for text in texts]

    return check
