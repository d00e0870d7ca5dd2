"""What a report takes to make and open, and what it finds: `report.py`, `verdicts.py`.

Imports `measure` and `networks`.
"""
