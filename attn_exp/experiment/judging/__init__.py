"""Judges people's own attention: asks a function questions, holds it to the definition, and names the mistake."""
