"""The pure core: model, events, admission and the state machine. No IO, no clock, no randomness (DESIGN D8)."""
