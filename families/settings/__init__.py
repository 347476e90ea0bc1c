"""sawtooth_settings: on-chain settings, changed by proposals that authorized keys vote on."""
