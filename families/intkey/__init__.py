"""intkey: names that hold whole numbers, which are set, increased and decreased."""
