"""A slice: how it is made, placed, changed, suspended and ended, for whom, and who may attach to it. Pure."""
