"""What of an array is kept: a partition of its differences, and a representative for each part.

A quantizer chooses; the decoder never knows which one it was (SPEC 7.7). Imports the ground floor only.
"""
