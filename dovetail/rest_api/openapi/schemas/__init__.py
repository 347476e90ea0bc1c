"""The JSON schemas of everything that the API answers with."""
