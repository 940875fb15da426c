"""What every server of ours has: levels of its log, and settings that change while it runs."""
