"""How a program is to be run: candidates of size and batch, which of them run longer, and the choice. Pure."""
