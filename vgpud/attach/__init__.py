"""The attach sockets: where the programs of slices connect and get their pages."""
