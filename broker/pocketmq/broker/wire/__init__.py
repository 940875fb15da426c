"""One module per subject. Each class gets the objects it uses and gives `handlers()`: code -> function."""
