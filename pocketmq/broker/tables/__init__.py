"""Tables that live in memory and in config/*.json."""
