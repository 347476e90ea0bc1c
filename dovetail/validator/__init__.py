"""The validator: a pure core (mempool, state, execution, journal, consensus) and the shell that moves bytes for it."""
