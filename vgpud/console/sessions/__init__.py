"""Requests and WebSockets below /session/JOB/ that the console passes on to the port of that session."""
