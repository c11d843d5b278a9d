"""Services: the process that keeps one service's replicas, checks them, and passes requests on to them."""
