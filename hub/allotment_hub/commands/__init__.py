"""Commands of allot that touch this machine."""
