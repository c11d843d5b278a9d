"""Services in the console: what their balancers say, changes, and requests below /service/NAME/ that are passed on."""
