"""The broker at its name servers: addresses, registration, announcements."""
