"""What is shown of states: summaries of arrays, differences between two states.

Imports the chain and what is below it. The command line prints the results.
"""
