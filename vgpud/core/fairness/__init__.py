"""How the daemon's processor time is divided among the users of its API: pure, on a clock that is passed in."""
