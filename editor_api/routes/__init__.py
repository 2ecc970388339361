"""The endpoints."""
