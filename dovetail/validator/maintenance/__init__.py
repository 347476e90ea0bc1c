"""What is done to a store as a whole: looked at, copied, put back, made smaller, pruned, repaired.

Runs beside no validator but for looking and backups. Prints nothing; what is said to people is the command line's
business.
"""
