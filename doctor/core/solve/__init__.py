"""The exact solver: masks over known versions, clauses compiled from rows, search. No rule lives here."""
