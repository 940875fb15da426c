"""The doctor: checks every file of a store without serving or changing it; what it finds: store.findings."""
