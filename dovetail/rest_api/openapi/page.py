"""Builds the HTML page of the documentation from the OpenAPI document. No path is named here.

The page has no scripts, loads nothing and has relative links only, so it works behind any path prefix of a proxy.
"""

import hashlib
import json
import re
import shlex
from base64 import b64encode
from collections.abc import Iterator, Mapping
from html import escape
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote

BASE: Final = "{base-url}"
"""The placeholder of the API's base URL. ``routes`` replaces it by the escaped URL that the client used."""

_STYLE: Final = files("dovetail.rest_api.openapi").joinpath("docs.css").read_text("utf-8")
_STYLE_HASH: Final = b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

SECURITY_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page's Content-Security-Policy, which allows its own style only."""

_code = re.compile(r"`([^`]+)`")

Node = Mapping[str, Any]
"""The document, or a part of it."""


def escaped(base: str) -> str:
    """The base URL, escaped for HTML and for single quotes in a shell."""
    return escape(base.replace("'", "%27"))


def page(document: Node) -> str:
    """The page, with ``BASE`` in place of the base URL."""
    return "\n".join(_page(document))


def _page(document: Node) -> Iterator[str]:
    info = document["info"]
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    yield f"<title>{escape(info['title'])}</title><style>{_STYLE}</style></head><body>"
    yield f"<header><h1>{escape(info['title'])}</h1>"
    yield f'<p class="dim">Version {escape(info["version"])} at <code>{BASE}</code> ·'
    yield ' <a href="openapi.json">OpenAPI document</a></p></header><main>'
    for paragraph in info["description"].split("\n\n"):
        yield f"<p>{_prose(paragraph)}</p>"
    yield "<p>Each path also answers HEAD, with the headers of GET, and OPTIONS, with its methods in "
    yield "<code>Allow</code>. Each answer carries <code>X-Request-Id</code>. "
    yield f"{_prose(document['components']['headers']['RequestId']['description'])}</p>"
    operations = list(_operations(document))
    yield "<nav>"
    for tag in document["tags"]:
        yield f"<strong>{escape(tag['name'])}</strong><ul>"
        for method, path, operation in operations:
            if tag["name"] in operation["tags"]:
                anchor = escape(operation["operationId"])
                yield f'<li><a href="#{anchor}">{method} {escape(path)}</a></li>'
        yield "</ul>"
    yield '<ul><li><a href="#schemas">Schemas</a></li></ul></nav>'
    for tag in document["tags"]:
        yield f"<h2>{escape(tag['name'])}</h2>"
        for method, path, operation in operations:
            if tag["name"] in operation["tags"]:
                yield from _operation(document, method, path, operation)
    yield '<h2 id="schemas">Schemas</h2>'
    for name, schema in document["components"]["schemas"].items():
        yield f'<h3 id="schema-{escape(name)}">{escape(name)}</h3>{_json(schema)}'
    yield "</main></body></html>"


def _operations(document: Node) -> Iterator[tuple[str, str, Node]]:
    """The operations with a section of their own: all but HEAD and OPTIONS."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method not in ("head", "options"):
                yield method.upper(), path, operation


def _operation(document: Node, method: str, path: str, operation: Node) -> Iterator[str]:
    yield f'<section><h3 id="{escape(operation["operationId"])}"><span class="method">{method}</span>'
    yield f" <code>{escape(path)}</code></h3>"
    yield f"<p><strong>{_prose(operation['summary'])}.</strong> {_prose(operation['description'])}</p>"
    shared = document["components"]["parameters"]
    parameters = [
        shared[item["$ref"].rpartition("/")[2]] if "$ref" in item else item for item in operation["parameters"]
    ]
    named = [parameter for parameter in parameters if parameter["in"] != "header"]
    if named:
        yield "<h4>Parameters</h4><dl>"
        for parameter in named:
            what = [parameter["in"], *(["required"] if parameter["required"] else [])]
            yield f'<dt><code>{escape(parameter["name"])}</code> <span class="dim">{", ".join(what)}</span></dt>'
            yield f"<dd>{_prose(parameter['description'])}{_shape(parameter['schema'])}</dd>"
        yield "</dl>"
    body = operation.get("requestBody")
    if body is not None:
        yield f"<h4>Body</h4><p>{_prose(body['description'])} <code>{escape(next(iter(body['content'])))}</code></p>"
    yield f"<h4>Try</h4><pre>{_curl(method, path, named, body)}</pre>"
    errors = {status: answer for status, answer in operation["responses"].items() if status >= "400"}
    yield "<h4>Answers</h4>"
    for status, answer in operation["responses"].items():
        if status < "400":
            yield f"<p><strong>{status}</strong> {_prose(answer['description'])}{_answer_shape(answer)}</p>"
            yield from _examples(answer)
    yield "<details><summary>Errors</summary><dl>"
    for status, answer in errors.items():
        for example in next(iter(answer["content"].values()))["examples"].values():
            error = example["value"]["error"]
            yield f"<dt><strong>{status}</strong>, code {error['code']}: {escape(error['title'])}</dt>"
            yield f"<dd>{escape(error['message'])}</dd>"
    yield "</dl></details></section>"


def _examples(answer: Node) -> Iterator[str]:
    for media in answer.get("content", {}).values():
        for name, example in media.get("examples", {}).items():
            value = example["value"]
            shown = f"<pre>{escape(value)}</pre>" if isinstance(value, str) else _json(value)
            yield f"<details><summary>Example: {escape(name)}</summary>{shown}</details>"


def _answer_shape(answer: Node) -> str:
    for media in answer.get("content", {}).values():
        return _shape(media["schema"])
    return ""


def _shape(schema: Node) -> str:
    """A schema in short: its name, pattern or type."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f' <a href="#schema-{name}">{name}</a>'
    if "pattern" in schema:
        return f' <code class="dim">{escape(schema["pattern"])}</code>'
    return f' <span class="dim">{escape(str(schema.get("type", "")))}</span>'


def _curl(method: str, path: str, parameters: list[Node], body: Node | None) -> str:
    """A curl command that a shell can run unchanged."""
    pairs = []
    for parameter in parameters:
        examples = list(parameter.get("examples", {}).values())
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", quote(str(examples[0]["value"])))
        elif parameter["required"] or (examples and parameter["name"] in ("count", "wait")):
            pairs.append(f"{parameter['name']}={quote(str(examples[0]['value']))}")
    words = ["curl"]
    if body is not None:
        media_type, media = next(iter(body["content"].items()))
        words += ["-H", shlex.quote(f"Content-Type: {media_type}")]
        binary = "example" not in media
        words += ["--data-binary", "@batches.bin"] if binary else ["-d", shlex.quote(json.dumps(media["example"]))]
    elif method != "GET":
        words += ["-X", method]
    query = f"?{'&'.join(pairs)}" if pairs else ""
    return f"{escape(' '.join(words))} '{BASE}{escape(path + query)}'"


def _prose(text: str) -> str:
    return _code.sub(r"<code>\1</code>", escape(text))


def _json(value: object) -> str:
    return f"<pre>{escape(json.dumps(value, indent=2, ensure_ascii=False))}</pre>"
