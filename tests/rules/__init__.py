"""The project's rules as tests: which package may import which, lengths, banned calls, generated files current."""
