"""Connected transaction processors: their registrations, and their tasks over the packed and the 1.x protocol."""
