"""The commands. Their groups, in ``dovetail.cli.lazy``, import a command's module when the command is called."""
