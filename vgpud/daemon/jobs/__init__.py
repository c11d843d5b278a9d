"""The daemon's part for jobs: decisions of the core's queue carried out, worker groups, progress, records."""
