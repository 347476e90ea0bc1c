"""What one path of the API declares: its handlers, and all that its documentation says of them.

Only the shape of a declaration lives here. The declarations stand in ``routes``, the pieces that they share in
``schemas``; what reads them are the router (``app``) and the document (``openapi``).
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
    """A part of the path, or a value of the query string. ``reserved``: accepted, and without effect.

    ``key`` tells parameters of one name from each other in the document.
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
    """What a request must carry."""

    media_type: str
    description: str
    schema: Json
    example: object = None


class Answer(NamedTuple):
    """One answer that is no error. ``schema`` names one of ``schemas.SCHEMAS``; empty: the answer has no JSON body."""

    status: int
    description: str
    schema: str = ""
    examples: Mapping[str, object] = {}
    media_type: str = JSON
    links: Mapping[str, Json] = {}


class Operation(NamedTuple):
    """One method of a path. Every operation may also be answered with the problems of ``parameters.ALWAYS``.

    ``with_status``: problems that come with another HTTP status than their own.
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
    """One path (``{name}`` stands for a part of it) and its operations by method. HEAD and OPTIONS follow from them."""

    path: str
    operations: Mapping[str, Operation]

    @property
    def handlers(self) -> dict[str, Handler]:
        """The handler of each method."""
        return {method: operation.handler for method, operation in self.operations.items()}

    @property
    def methods(self) -> list[str]:
        """Every method that is answered, in alphabetical order: what ``Allow`` says."""
        return sorted({*self.operations, "HEAD", "OPTIONS"})
