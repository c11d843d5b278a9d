"""The table by which the arbiter is judged: every row on a device without any hook and under our arbiter (rows.py).

W1, W2, W2b, W4 and W5 also run in two plain ways to share a device (plain.py), to compare with.
"""
