"""Answers: resources as JSON, sent in pieces, and a quota for the memory that they hold."""
