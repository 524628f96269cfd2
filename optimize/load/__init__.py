"""The load generator: schedules, the client, what was measured, and how wrong the client is itself."""
