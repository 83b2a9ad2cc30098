"""Cutting tables on a GPU and putting them together, beside pylibcudf."""
