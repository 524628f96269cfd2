"""Rows drafted from what a package index says, for a person to finish and merge."""
