"""Connected transaction processors: who is there, and carrying tasks to them, packed or by the 1.x conversation."""
