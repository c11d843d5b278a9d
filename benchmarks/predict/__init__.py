"""How well models are judged before they run, devices shared by what jobs use, and jobs resized while they run."""
