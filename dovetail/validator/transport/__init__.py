"""The validator's port: sockets, message envelopes, the access policy, and the rights of each key."""
