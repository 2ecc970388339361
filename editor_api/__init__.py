"""The HTTP service: OpenAI's endpoints and edits over lookup decoding. Sees lookupdec by its public names alone."""
