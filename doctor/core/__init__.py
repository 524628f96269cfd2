"""The pure core: types and judgements, with no I/O, clock, environment or randomness."""
