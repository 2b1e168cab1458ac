"""The command line: ``radiator COMMAND``. One file per command, each loaded only when it is called.

``main`` is the group and the table of commands, ``common`` what they share (exit codes, consoles, options of a
connection). ``docs/cli.md`` describes every command and option; a test holds it to that.
"""
