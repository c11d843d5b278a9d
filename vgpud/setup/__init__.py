"""`vgpu setup`: makes container engines and systemd know vgpud, and takes exactly that out again.

site.py: where things lie (a host's root, or a user's home); plan.py: changes that can be shown, done and undone;
install.py: the libraries; one module per engine: docker.py, podman.py, containerd.py, systemd.py.
"""
