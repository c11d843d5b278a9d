"""What a hostile tenant or user costs its neighbours on the simulated device."""
