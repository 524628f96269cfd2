"""Whether an environment would run on a machine, told from both before anything is started."""
