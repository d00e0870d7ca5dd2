"""Fields: smooth arrays whose elements are predicted from their neighbours (SPEC 6.4 and 7.8)."""
