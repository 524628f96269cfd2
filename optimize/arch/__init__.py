"""Rules by which the shapes of model families follow from their configs."""
