"""A broker whose role a controller decides: identity, epochs, the in-sync set, replication between roles."""
