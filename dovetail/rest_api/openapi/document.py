"""Builds the OpenAPI 3.1 document from the table of routes. No path is named here.

HEAD, OPTIONS, error answers and the headers of every answer are derived by rule; no declaration contains them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from http import HTTPStatus
from typing import Final

from dovetail.rest_api.answers.pieces import Json
from dovetail.rest_api.config import RestConfig
from dovetail.rest_api.errors import Problem
from dovetail.rest_api.openapi.declarations import examples
from dovetail.rest_api.openapi.declarations.endpoint import JSON, Answer, Endpoint, Operation, Parameter
from dovetail.rest_api.openapi.declarations.parameters import ALWAYS
from dovetail.rest_api.openapi.schemas import shapes
from dovetail.rest_api.openapi.schemas.ledger import SCHEMAS

_named = re.compile(r"\{(\w+)\}")

_SERVED: Final = (
    "The HTTP interface of a ledger node: it accepts batches, and returns blocks, batches, transactions and state."
    " Answers are JSON unless stated otherwise; binary values are standard base64. Every error has the same shape, and"
    " its message says what is wrong with the request. An unknown path gets 404; a known path with another method gets"
    " 405 and `Allow`. If a parameter is given twice, the first value counts; several `id` parameters add up. Unknown"
    " parameters are ignored.\n\n"
    "The API requires no credentials; a proxy in front of it may. The API rebuilds links from the `Forwarded` and"
    " `X-Forwarded-Host`, `-Proto`, `-Path` headers of trusted proxies."
)
_REQUEST_ID: Final[Json] = {
    "description": "The id in the log lines of both processes: the request's own id if it has 1 to 128 letters,"
    " digits or `._~:+/=@-`, otherwise a new one.",
    "schema": {"type": "string"},
    "example": "5bd6d1a3c0f24c2f",
}


def document(endpoints: Iterable[Endpoint], version: str, config: RestConfig) -> Json:
    """The document without ``servers``, whose one URL depends on how the client reached the API.

    ``{name}`` in a declaration is replaced by the limit or setting of that name in ``config``: by a number if it is the
    whole text, by digits inside a text.
    """
    running = {**asdict(config.limits), "timeout_s": config.timeout_s}
    return {name: _fill_in(value, running) for name, value in _declared(endpoints, version).items()}


def _fill_in(value: object, running: Mapping[str, int]) -> object:
    if isinstance(value, dict):
        return {key: _fill_in(member, running) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_fill_in(member, running) for member in value]
    if not isinstance(value, str):
        return value
    whole = running.get(value[1:-1]) if value.startswith("{") else None
    return _named.sub(lambda found: str(running.get(found[1], found[0])), value) if whole is None else whole


def _declared(endpoints: Iterable[Endpoint], version: str) -> Json:
    paths: dict[str, Json] = {}
    used: dict[str, Parameter] = {}
    tags: dict[str, None] = {}
    for endpoint in endpoints:
        item: Json = {}
        for method, operation in endpoint.operations.items():
            used |= {parameter.key or parameter.name: parameter for parameter in operation.parameters}
            tags[operation.tag] = None
            item[method.lower()] = _operation(operation)
        paths[endpoint.path] = item | {"head": _head(endpoint.operations["GET"]), "options": _options(endpoint)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Dovetail REST API",
            "version": version,
            "summary": "A ledger over HTTP.",
            "description": _SERVED,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [{"name": tag} for tag in tags],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "parameters": {
                **{key: _parameter(parameter) for key, parameter in used.items()},
                "requestId": {"name": "X-Request-Id", "in": "header", "required": False, **_REQUEST_ID},
            },
            "headers": {
                "RequestId": {"required": True, **_REQUEST_ID},
                "RetryAfter": {
                    "description": "Seconds after which to try again.",
                    "schema": {"type": "integer", "minimum": 0},
                    "example": 1,
                },
                "Allow": {
                    "description": "The methods of this path.",
                    "required": True,
                    "schema": {"type": "string"},
                    "example": "GET, HEAD, OPTIONS",
                },
            },
            "responses": {
                "NotFound": _error_answer(404, [Problem.PATH_NOT_FOUND]),
                "MethodNotAllowed": _error_answer(405, [Problem.METHOD_NOT_ALLOWED]),
            },
        },
    }


def problems_by_status(operation: Operation) -> dict[int, list[Problem]]:
    """Every problem that the operation may answer with, by HTTP status, in the order of status and code."""
    pairs = {(problem.status, problem) for problem in (*ALWAYS, *operation.problems)} | set(operation.with_status)
    if any(parameter.where == "path" for parameter in operation.parameters):
        # An escaped slash in a parameter makes another path, which is unknown.
        pairs.add((404, Problem.PATH_NOT_FOUND))
    found: dict[int, list[Problem]] = {}
    for status, problem in sorted(pairs, key=lambda pair: (pair[0], pair[1].code)):
        found.setdefault(status, []).append(problem)
    return found


def _operation(operation: Operation) -> Json:
    name = operation.handler.__name__
    answers = {str(answer.status): _answer(answer) for answer in operation.answers}
    for status, problems in problems_by_status(operation).items():
        answers[str(status)] = _error_answer(status, problems)
    described: Json = {
        "operationId": name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": operation.description,
        "parameters": _parameters(operation),
    }
    if operation.body is not None:
        media: Json = {"schema": operation.body.schema}
        if operation.body.example is not None:
            media["example"] = operation.body.example
        described["requestBody"] = {
            "description": operation.body.description,
            "required": True,
            "content": {operation.body.media_type: media},
        }
    return described | {"responses": answers}


def _parameters(operation: Operation) -> list[Json]:
    keys = [*(parameter.key or parameter.name for parameter in operation.parameters), "requestId"]
    return [{"$ref": f"#/components/parameters/{key}"} for key in keys]


def _parameter(parameter: Parameter) -> Json:
    described: Json = {
        "name": parameter.name,
        "in": parameter.where,
        "required": parameter.required,
        "description": parameter.description,
        "schema": parameter.schema,
    }
    if parameter.examples:
        described["examples"] = {name: {"value": value} for name, value in parameter.examples.items()}
    if parameter.reserved:
        described["x-reserved"] = True
    return described


def _headers(*more: str) -> Json:
    names = {"X-Request-Id": "RequestId", "Retry-After": "RetryAfter", "Allow": "Allow"}
    return {name: {"$ref": f"#/components/headers/{names[name]}"} for name in ("X-Request-Id", *more)}


def _answer(answer: Answer) -> Json:
    described: Json = {"description": answer.description, "headers": _headers()}
    schema: Json = shapes.ref(answer.schema) if answer.schema else {"type": "string"}
    media: Json = {"schema": schema}
    if answer.examples:
        media["examples"] = {name: {"value": value} for name, value in answer.examples.items()}
    described["content"] = {answer.media_type: media}
    if answer.links:
        described["links"] = dict(answer.links)
    return described


def _error_answer(status: int, problems: list[Problem]) -> Json:
    codes = {"properties": {"error": {"properties": {"code": {"enum": [problem.code for problem in problems]}}}}}
    more = ["Retry-After"] if status in (429, 503) else ["Allow"] if status == 405 else []
    return {
        "description": f"{HTTPStatus(status).phrase}: " + "; ".join(f"{p.code} {p.title}" for p in problems) + ".",
        "headers": _headers(*more),
        "content": {
            JSON: {
                "schema": {"allOf": [shapes.ref("Error"), codes]},
                "examples": {problem.name.lower(): {"value": _error(problem)} for problem in problems},
            }
        },
    }


def _error(problem: Problem) -> Json:
    return {"error": {"code": problem.code, "title": problem.title, "message": examples.MESSAGES[problem]}}


def _head(get: Operation) -> Json:
    statuses = {answer.status: answer.description for answer in get.answers}
    statuses |= {status: f"{HTTPStatus(status).phrase}, without a body." for status in problems_by_status(get)}
    return {
        "operationId": get.handler.__name__.replace("get_", "head_", 1),
        "tags": [get.tag],
        "summary": f"{get.summary}: the headers alone",
        "parameters": _parameters(get),
        "responses": {
            str(status): {"description": text, "headers": _headers(*(["Retry-After"] if status in (429, 503) else []))}
            for status, text in statuses.items()
        },
    }


def _options(endpoint: Endpoint) -> Json:
    get = endpoint.operations["GET"]
    in_path = tuple(parameter for parameter in get.parameters if parameter.where == "path")
    asked = get._replace(parameters=in_path, problems=(), with_status=())
    # OPTIONS answers the same for any value of a path parameter.
    anything = [_parameter(parameter._replace(schema={"type": "string"})) for parameter in in_path]
    answers: Json = {"204": {"description": "The methods are in `Allow`.", "headers": _headers("Allow")}}
    for status, problems in problems_by_status(asked).items():
        answers[str(status)] = _error_answer(status, problems)
    return {
        "operationId": get.handler.__name__.replace("get_", "options_", 1),
        "tags": [get.tag],
        "summary": "The methods of this path",
        "parameters": [*anything, {"$ref": "#/components/parameters/requestId"}],
        "responses": answers,
    }
