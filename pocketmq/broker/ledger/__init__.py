"""The books of groups: what became of all messages, computed from the delivery record. Ours."""
