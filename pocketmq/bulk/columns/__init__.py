"""From bytes of records to Arrow columns; nothing per message in Python."""
