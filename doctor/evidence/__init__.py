"""Raw evidence in: the collector, its witnesses, bundles."""
