"""The command line `vgpu`. Each command is a module, imported when it is called: `vgpu --help` is quick."""
