"""From a selection to partitions."""
