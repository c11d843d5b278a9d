"""Where a job goes: the cluster's free room, and one small file for each rule that chooses in it."""
