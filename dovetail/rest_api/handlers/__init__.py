"""The handlers of the REST API's paths."""
