"""intkey 2.0: what differs from 1.0, whose rules, addresses and leaves it shares; both serve one state side by side."""
