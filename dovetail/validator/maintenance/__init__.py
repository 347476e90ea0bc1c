"""Operations on a whole store: inspection, verification, backup, restore, compaction, pruning, repair.

Only inspection, verification and backup may run beside a validator. Prints nothing; the command line does.
"""
