"""The declarations of all paths, and the documents made from them."""
