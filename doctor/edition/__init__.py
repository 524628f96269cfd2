"""From hand-written YAML to one compiled edition, and back into memory."""
