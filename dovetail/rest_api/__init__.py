"""The REST API: the HTTP interface of a node (API.md).

The process keeps no state of its own, so several of them may serve one validator, which they reach over ZeroMQ only.
"""
