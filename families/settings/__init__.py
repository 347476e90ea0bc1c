"""sawtooth_settings: on-chain settings. Authorized keys propose changes and vote on them."""
