"""What is trained: the data sets, the networks, their training, the states of a run that are kept.

Imports nothing of the other folders; needs torch.
"""
