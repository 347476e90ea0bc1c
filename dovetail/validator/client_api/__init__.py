"""Serves clients: reads of chain and state, batch statuses, the state of the node."""
