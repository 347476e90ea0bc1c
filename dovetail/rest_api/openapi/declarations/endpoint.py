"""The types of a declaration: one path of the API with its handlers and everything that is documented about them.

``ledger``, ``node`` and ``routes`` hold the declarations. ``server.app`` uses them to route requests, and ``document``
uses them to document the API.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, NamedTuple

from starlette.responses import Response

from dovetail.rest_api.answers.pieces import Json
from dovetail.rest_api.errors import Problem
from dovetail.rest_api.request.call import Call

Handler = Callable[[Call], Awaitable[Response]]
JSON = "application/json"


class Parameter(NamedTuple):
    """A parameter in the path or the query string. ``reserved``: accepted, and without effect.

    ``key``: the parameter's name in the document's components, if other parameters have the same ``name``.
    """

    name: str
    where: Literal["path", "query"]
    description: str
    schema: Json
    examples: Mapping[str, object]
    required: bool = False
    reserved: bool = False
    key: str = ""


class Body(NamedTuple):
    """The required body of a request."""

    media_type: str
    description: str
    schema: Json
    example: object = None


class Answer(NamedTuple):
    """One successful answer. ``schema``: a name in ``SCHEMAS``; empty if the body is not JSON."""

    status: int
    description: str
    schema: str = ""
    examples: Mapping[str, object] = {}
    media_type: str = JSON
    links: Mapping[str, Json] = {}


class Operation(NamedTuple):
    """One method of a path. Every operation may also answer with the problems of ``parameters.ALWAYS``.

    ``with_status``: problems with another HTTP status than their own.
    """

    handler: Handler
    tag: str
    summary: str
    description: str
    answers: tuple[Answer, ...]
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    problems: tuple[Problem, ...] = ()
    with_status: tuple[tuple[int, Problem], ...] = ()


class Endpoint(NamedTuple):
    """One path, in which ``{name}`` is a parameter, and its operations by method. HEAD and OPTIONS are derived."""

    path: str
    operations: Mapping[str, Operation]

    @property
    def handlers(self) -> dict[str, Handler]:
        return {method: operation.handler for method, operation in self.operations.items()}

    @property
    def methods(self) -> list[str]:
        """Every method of the path in alphabetical order: the value of ``Allow``."""
        return sorted({*self.operations, "HEAD", "OPTIONS"})


def get_only(
    path: str,
    handler: Handler,
    tag: str,
    summary: str,
    description: str,
    answers: tuple[Answer, ...],
    parameters: tuple[Parameter, ...] = (),
    problems: tuple[Problem, ...] = (),
) -> Endpoint:
    get = Operation(handler, tag, summary, description, answers, parameters, problems=problems)
    return Endpoint(path, {"GET": get})
