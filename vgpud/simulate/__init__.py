"""The simulator: replays traces of jobs with the queue's own machine, policies and placement rules."""
