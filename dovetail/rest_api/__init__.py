"""The REST API: the HTTP interface of a node (API.md).

The process keeps no state of its own, so several of them may serve one validator, which they reach over ZeroMQ only.

A new path needs a handler (``handlers``), a view of its answer (``answers.views``), a schema (``openapi.schemas``) and
a declaration (``openapi.declarations``), by which it is routed and documented.
"""
