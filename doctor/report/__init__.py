"""Any value as text or for machines."""
