"""Consumer groups: members, offsets, and the handling of members that subscribe differently."""
