"""One HTTP request: its parameters and body, its call to the validator, and the links in its answer."""
