"""`vgpu setup`: registers vgpud with container engines and systemd, and undoes exactly that.

site.py: locations (a host's root, or a user's home); plan.py: changes that can be shown, done and undone;
install.py: the libraries; one module per engine: docker.py, podman.py, containerd.py, systemd.py.
"""
