"""SQL92 filters of groups in the broker, evaluated as messages arrive, and their Bloom positions."""
