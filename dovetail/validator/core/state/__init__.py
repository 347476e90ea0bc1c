"""State: a map from addresses to bytes, for each root. Pure: the caller passes a function that reads nodes."""
