"""`make clients-gpu`: real frameworks on a real device, each without a slice and in one; see __main__.py."""
