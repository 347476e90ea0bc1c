"""The HTML page: complete, without external resources, and safe against injection."""

import re
from html.parser import HTMLParser

from tests.dovetail.rest_api.openapi.test_document import operations
from tests.dovetail.rest_api.support import run, running_api


class Page(HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_document_and_page_name_the_url_behind_a_proxy() -> None:
    async def test() -> None:
        async with running_api() as api:
            headers = {"forwarded": "host=ledger.example;proto=https;path=/api"}
            document = (await api.http.get("/openapi.json", headers=headers)).json()
            assert document["servers"] == [{"url": "https://ledger.example/api"}]
            page = (await api.http.get("/docs", headers=headers)).text
            assert "curl &#x27;https://ledger.example" not in page
            assert "curl 'https://ledger.example/api/blocks?count=1'" in page
            assert "node:8080" not in page

    run(test())


def test_the_page_has_every_anchor_and_loads_nothing() -> None:
    async def test() -> None:
        async with running_api() as api:
            response = await api.http.get("/docs")
            assert response.headers["content-type"] == "text/html; charset=utf-8"
            policy = response.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; style-src 'sha256-")
            tags = Page(response.text).tags
            assert {tag for tag, _ in tags}.isdisjoint({"script", "link", "img", "iframe", "form", "object", "base"})
            targets = [attributes["href"] for tag, attributes in tags if tag == "a"]
            anchors = {attributes["id"] for _, attributes in tags if "id" in attributes}
            for target in targets:
                assert target == "openapi.json" or (target or "").removeprefix("#") in anchors, target
            for method, _, operation in operations():
                if method not in ("HEAD", "OPTIONS"):
                    assert operation["operationId"] in anchors

    run(test())


def test_a_forwarded_path_is_escaped_in_the_page() -> None:
    async def test() -> None:
        async with running_api() as api:
            for path in ("/a'b", "/a&lt;b", "/a%22%3Cb", "/$(x)"):
                headers = {"forwarded": f'host=ledger.example;proto=https;path="{path}"'}
                text = (await api.http.get("/docs", headers=headers)).text
                lines = [line for line in re.findall(r"<pre>(curl [^\n]*)</pre>", text) if "/blocks?" in line]
                assert len(lines) == 1
                assert lines[0].count("'") == 2
                assert "<" not in lines[0]

    run(test())
