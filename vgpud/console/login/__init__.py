"""Log-in and the processes that act as users: what runs with privileges, without the web server and without gRPC."""
