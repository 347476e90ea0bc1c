"""The validator's port: sockets, the envelope of messages, who may connect, and what each key may say."""
