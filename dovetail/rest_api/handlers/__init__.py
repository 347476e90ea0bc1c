"""The handlers of the REST API's paths: each asks the validator and turns its answer into JSON."""
