"""Malformed requests to a whole node: no 500, no hang, and the node continues."""

import asyncio
from urllib.parse import urlsplit

from hypothesis import given, settings

from tests.dovetail.rest_api.hostile import Asking, fragments, requests
from tests.dovetail.rest_api.raw_http import check_answer, read_answers, talk
from tests.system.e2e.clients import Author
from tests.system.e2e.conftest import Shared
from tests.system.e2e.process import DEADLINE_S


def _port(shared: Shared) -> int:
    return int(urlsplit(shared.network.rest_url).port or 0)


class TestHostileRequests:
    """Any query strings, headers and bodies: never a 500, never a hang."""

    def test_every_request_has_one_answer_in_order(self, shared: Shared) -> None:
        @settings(max_examples=150)
        @given(asking=requests())
        def each(asking: Asking) -> None:
            (answer,) = read_answers(asyncio.run(talk(_port(shared), asking.raw)), asking.method)
            check_answer(answer)

        each()

    def test_bytes_that_need_not_be_requests(self, shared: Shared) -> None:
        @settings(max_examples=100)
        @given(pieces=fragments)
        def each(pieces: list[bytes]) -> None:
            for answer in read_answers(asyncio.run(talk(_port(shared), b"".join(pieces), half_close=True))):
                check_answer(answer)

        each()

    def test_node_goes_on(self, shared: Shared, author: Author) -> None:
        answer = shared.api.post(author.batch(author.intkey("set", "hostile", 1)), wait=int(DEADLINE_S))
        assert answer.status_code == 201
