"""Pages for people and operators."""
