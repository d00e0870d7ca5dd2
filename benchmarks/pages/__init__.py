"""What a report takes to make and to open: `report.py`.

Imports `measure` and `networks`.
"""
