"""Reading from brokers over the network."""
