"""`python -m vgpud.k8s` is `vgpud-k8s`."""

from vgpud.k8s.main import main

main()
