"""The daemon: it wires the shells together. Nothing but `vgpud.serve` imports it."""
