"""What is decided about a service. Pure: the time is passed in."""
