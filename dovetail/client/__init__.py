"""The HTTP client of a node's REST API."""

from dovetail.client.client import ApiError, BatchStatus, DovetailClient, Page, decode_base64, is_not_found

__all__ = ["ApiError", "BatchStatus", "DovetailClient", "Page", "decode_base64", "is_not_found"]
