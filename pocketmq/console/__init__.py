"""The web console: a client of its cluster, served by a broker or by a process of its own."""
