"""The row types of the matrix, one module a family. Data, no rules."""
