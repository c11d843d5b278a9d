"""The commands that set up and check an installation: setup, doctor, sim, version, completion."""
