"""What is promised survives SIGKILL, shown on the real process."""
