"""The rules of the house as tests: who may import whom, lengths, banned calls, generated files current."""
