"""Makes blocks: carries out the engine's decisions, and retries batches that got no verdict."""
