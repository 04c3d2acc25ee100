"""People and what is theirs: what becomes of it when they leave."""
