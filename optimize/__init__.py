"""Measuring and proving: model facts, memory and speed arithmetic, engines, load."""
