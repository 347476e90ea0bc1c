"""Answers: resources as JSON, sent in pieces under one bound on memory."""
