"""The commands of slices and devices: run, slice, gpu, ps, top, trace, events."""
