"""The command line: ``radiator COMMAND``. Each command has a module, which is imported when the command is called.

``main`` has the group and the table of commands, ``common`` what they share (exit codes, output, options of a
connection). ``docs/cli.md`` documents every command and option; a test compares both.
"""
