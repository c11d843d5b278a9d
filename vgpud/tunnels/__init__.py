"""Connections that are passed on once their handshake is made: WebSockets of sessions and of services."""
