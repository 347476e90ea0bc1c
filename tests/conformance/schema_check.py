"""Checks answers against the OpenAPI document: a node may only answer what its document declares.

This module finds the declaration of an answer and validates the answer. Requests, and rules on what a node should
answer, do not belong here.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from dovetail.rest_api.config import RestConfig
from dovetail.rest_api.openapi.document import document as made
from dovetail.rest_api.routes import ENDPOINTS, VERSION

Document = Mapping[str, Any]


@cache
def own_document() -> Document:
    """The document of this source tree, as a client reads it."""
    return dict(json.loads(json.dumps(made(ENDPOINTS, VERSION, RestConfig()))))


def check(
    method: str, path: str, status: int, headers: Mapping[str, str], body: bytes, *, document: Document | None = None
) -> None:
    """Raise AssertionError that says what is wrong with the answer to ``method`` ``path``.

    ``path`` may have a query string. Names in ``headers`` may be in any case. By default, ``document`` is that of this
    source tree.
    """
    document = own_document() if document is None else document
    asked = f"{method} {path} -> {status}"
    found = {name.lower(): value for name, value in headers.items()}
    answer = _declared(document, method, unquote(path.partition("?")[0], "latin-1"), status, asked)
    for name, header in answer.get("headers", {}).items():
        declared = _resolved(document, header)
        value = found.get(name.lower())
        assert value is not None or not declared.get("required"), f"{asked}: header {name} is missing"
        if value is not None:
            _validate(document, declared["schema"], _typed(value, declared["schema"]), f"{asked}: header {name}")
    if method == "HEAD" or "content" not in answer:
        assert not body, f"{asked}: a body of {len(body)} bytes, but none is documented"
        return
    media_type = found.get("content-type", "").partition(";")[0]
    assert media_type in answer["content"], f"{asked}: content type {media_type!r}, documented: {[*answer['content']]}"
    content = json.loads(body) if media_type == "application/json" else body.decode()
    _validate(document, answer["content"][media_type]["schema"], content, asked)


def operation_of(document: Document, method: str, path: str) -> tuple[str, dict[str, Any] | None]:
    """The path template and the operation of a request.

    The template is "" if none matches ``path``. The operation is None if the path has no such method.
    """
    # A literal path goes before a template.
    for template, item in sorted(document["paths"].items(), key=lambda entry: "{" in entry[0]):
        if re.fullmatch(re.sub(r"\\\{[^}]*\\\}", "[^/]+", re.escape(template)), path):
            return template, item.get(method.lower())
    return "", None


def _declared(document: Document, method: str, path: str, status: int, asked: str) -> dict[str, Any]:
    template, operation = operation_of(document, method, path)
    shared = document["components"]["responses"]
    if operation is None:
        wanted = (405, "MethodNotAllowed") if template else (404, "NotFound")
        assert status in (wanted[0], 400), f"{asked}: not documented: the status must be {wanted[0]}"
        return dict(shared[wanted[1]] if status != 400 else document["paths"]["/"]["get"]["responses"]["400"])
    answers = operation["responses"]
    assert str(status) in answers, f"{asked}: status not documented; documented: {[*answers]}"
    return dict(answers[str(status)])


def _resolved(document: Document, item: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in item:
        found: Any = document
        for part in item["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        item = found
    return item


def _typed(value: str, schema: Mapping[str, Any]) -> object:
    return int(value) if schema.get("type") == "integer" and value.isdigit() else value


def _validate(document: Document, schema: Mapping[str, Any], value: object, what: str) -> None:
    # References in the schema point into the components.
    whole = {**schema, "components": {"schemas": document["components"]["schemas"]}}
    try:
        jsonschema_rs.validator_for(whole, validate_formats=True).validate(value)
    except jsonschema_rs.ValidationError as error:
        raise AssertionError(f"{what}: {error.message} at {'/'.join(map(str, error.instance_path))}") from None
