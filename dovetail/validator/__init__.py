"""The validator: a pure core (mempool, state, execution, journal, consensus) and the parts that connect it to sockets,
disk and processes."""
