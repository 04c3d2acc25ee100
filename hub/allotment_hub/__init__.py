"""People and money: configuration, broker, pages and machine-side commands."""
