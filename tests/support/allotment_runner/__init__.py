"""What ./tests/run does; standard library only, because it runs before anything is installed."""
