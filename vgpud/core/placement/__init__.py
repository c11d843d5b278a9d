"""Where a job goes: the cluster's free capacity, and one small file for each rule that chooses in it."""
