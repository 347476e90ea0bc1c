"""The one table of paths, which routes and documents, and the paths that tell of the API itself.

Its parts stand in ``ledger_endpoints`` and ``node_endpoints``; the server is ``app``, the document is made in
``openapi``, its page in ``docs``.
"""

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from starlette.responses import Response

from rest_api import docs, examples, links, openapi
from rest_api.call import Call, json_response
from rest_api.endpoint import Answer, Endpoint, Json, Operation
from rest_api.ledger_endpoints import LEDGER
from rest_api.node_endpoints import NODE

__all__ = ["ENDPOINTS", "Endpoint"]


def _installed_version() -> str:
    try:
        return version("dovetail")
    except PackageNotFoundError:
        return "unknown (not installed)"


VERSION: Final = _installed_version()
_NAME: Final = "Dovetail REST API"
_LINKED: Final = {
    "docs": "/docs",
    "openapi": "/openapi.json",
    "blocks": "/blocks",
    "batches": "/batches",
    "transactions": "/transactions",
    "state": "/state",
}


async def get_root(call: Call) -> Response:
    """The service's name and version, and where to go on."""
    return json_response({"data": _root(call.base, VERSION), "link": call.link()})


async def get_openapi(call: Call) -> Response:
    """The OpenAPI 3.1 document, whose server is the address that the client used."""
    return json_response({**_document(), "servers": [{"url": call.base}]})


async def get_docs(call: Call) -> Response:
    """The same as a page to read."""
    return Response(
        _page().replace(docs.BASE, docs.escaped(call.base)),
        media_type="text/html",
        headers={"Content-Security-Policy": docs.SECURITY_POLICY, "X-Content-Type-Options": "nosniff"},
    )


def _root(base: str, installed: str) -> Json:
    linked = {name: links.url(base, path) for name, path in _LINKED.items()}
    return {"name": _NAME, "version": installed, "links": linked}


@cache
def _document() -> Json:
    return openapi.document(ENDPOINTS, VERSION)


@cache
def _page() -> str:
    return docs.page(_document())


_ABOUT: Final = (
    Endpoint(
        "/",
        {
            "GET": Operation(
                get_root,
                "API",
                "Name, version and where to go on",
                "The links are those that the client can use, whatever proxy stands between.",
                (Answer(200, "What this is.", "Root", {"root": examples.single("/", _root(examples.BASE, "1.0.0"))}),),
            )
        },
    ),
    Endpoint(
        "/openapi.json",
        {
            "GET": Operation(
                get_openapi,
                "API",
                "This documentation for programs",
                "OpenAPI 3.1. Its server is the address that the client used.",
                (Answer(200, "The document.", "Document"),),
            )
        },
    ),
    Endpoint(
        "/docs",
        {
            "GET": Operation(
                get_docs,
                "API",
                "This documentation for people",
                "The same as a page, without scripts and without anything from elsewhere.",
                (Answer(200, "The page.", media_type="text/html"),),
            )
        },
    ),
)

ENDPOINTS: Final = (*_ABOUT, *LEDGER, *NODE)
