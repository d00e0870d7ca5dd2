"""What is shown of states: summaries of arrays, differences of two states.

Imports the chain and what is below it; the command line prints it.
"""
