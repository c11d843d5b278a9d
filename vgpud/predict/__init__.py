"""What a model will use of a device, known before it runs.

`model` predicts with nothing but the standard library; `train` makes its files with scikit-learn; `features` are the
numbers that both go by, and `dataset` is the CSV of measured jobs that is trained from.
"""
