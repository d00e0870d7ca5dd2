"""Which quantizer for which array: roles, policies, presets, targets.

Also the record of them in a checkpoint. Nothing here reads or writes a file. Imports the frame and
what is below it.
"""
