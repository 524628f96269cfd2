"""Evidence to Host: one parser an area, pure."""
