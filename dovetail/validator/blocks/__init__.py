"""Making blocks: carries out what the engine decides, and retries what got no verdict."""
