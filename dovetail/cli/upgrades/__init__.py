"""The work of the upgrade commands: the setting of the permitted families, its changes, and rehearsals."""
