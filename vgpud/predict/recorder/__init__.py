"""A folder for PYTHONPATH: what `vgpu predict run` has the program's own interpreter do."""
