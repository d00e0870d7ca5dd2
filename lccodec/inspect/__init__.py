"""What is shown of states and runs: summaries of arrays, differences of states, reports of chains.

Imports the chain and what is below it. `examination` makes a report from what `measures` finds,
`findings` says what stands out of it, and `report` what is in it. The command line prints these,
the page draws them.
"""
