"""People and what is theirs: for now, what becomes of it when they leave."""
