"""Worker processes: the connection to the validator, the thread that applies, and supervision."""
