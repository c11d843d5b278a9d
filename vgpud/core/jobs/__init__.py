"""What all parts of the queue speak about: jobs, their events and commands, facts and classes of similar jobs."""
