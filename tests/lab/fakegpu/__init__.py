"""Make-believe GPUs: cards on the PCI bus of a lab host, and libraries that answer as the driver's do."""
