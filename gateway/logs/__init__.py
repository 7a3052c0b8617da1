"""What the log says: the catalogue of events and how lines leave, and the tellers that sum up."""
