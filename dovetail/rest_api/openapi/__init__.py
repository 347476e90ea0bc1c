"""The declarations of all paths, and the OpenAPI document and HTML page that are made from them."""
