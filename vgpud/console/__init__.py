"""The console in the browser: `vgpu console serve`, a process beside the daemon, over the gRPC API only."""
