"""Predicts a model's use of a device before it runs.

`model` predicts with nothing but the standard library; `train` makes its files with scikit-learn; `features` are the
numbers that both use, and `dataset` is the CSV of measured jobs for training.
"""
