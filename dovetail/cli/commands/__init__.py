"""The commands, one small module a group. What is heavy is imported inside a command, so that ``--help`` is quick."""
