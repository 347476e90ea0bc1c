"""What clients ask of the validator: reads of chain and state, batch statuses, the state of the node."""
