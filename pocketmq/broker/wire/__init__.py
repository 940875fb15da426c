"""One module per subject. Each class receives the objects it uses; `handlers()` maps codes to functions."""
