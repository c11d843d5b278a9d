"""Code that several commands share: the client, options, tables, exit codes."""
