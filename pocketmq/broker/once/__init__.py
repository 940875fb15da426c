"""What a client sends twice, because an answer was lost, is stored once. Ours."""
