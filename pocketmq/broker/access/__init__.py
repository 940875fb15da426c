"""Access control: accounts, addresses, signatures, refusals in the log."""
