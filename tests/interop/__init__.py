"""The gateway as a process, against the clients of other projects."""
