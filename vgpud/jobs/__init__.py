"""The shell that starts and ends jobs' processes, by a supervisor for each."""
