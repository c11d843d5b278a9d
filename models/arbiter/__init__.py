"""The arbiter's policy as a reference model: equal inputs give the decisions of `shim/arbiter/*.c`, step by step."""
