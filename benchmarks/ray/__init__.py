"""Ray on this machine: workers with fractions of simulated devices, in slices and without."""
