"""The commands around an upgrade: the setting of the permitted families, plans for it, and rehearsals."""
