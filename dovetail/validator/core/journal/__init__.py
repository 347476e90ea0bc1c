"""The journal: which batches may enter a block, and what a block is made of. Pure."""
