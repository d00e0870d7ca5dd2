"""What is shown of states and runs. It imports the chain and what is below it.

- `summary`: arrays in numbers; `difference`: two states; `picture`: slices of fields.
- `inventory`: what lies in a chain; `trajectory`: what arrays do over a run; `loss`: what was lost.
- `findings`: what stands out; `report`: all that is shown; `examination` makes it.
"""
