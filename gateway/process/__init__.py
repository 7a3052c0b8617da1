"""The process itself: its memory, descriptors, threads, places on the disk, and its end."""
