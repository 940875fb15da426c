"""One module per subject. Each class receives the objects it uses and returns `handlers()`: code ->
function.
"""
