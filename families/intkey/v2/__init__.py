"""intkey 2.0: wider values than 1.0, with the same rules, addresses and leaves. Both versions serve one state."""
