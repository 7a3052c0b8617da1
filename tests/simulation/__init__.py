"""The journal on a simulated disk: everything from one seed, nothing from the machine."""
