"""What the console does over time: samples, history, alarms."""
