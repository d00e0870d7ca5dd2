"""The formats and frameworks around lccodec, each imported on its own: the same verbs everywhere."""
