"""Beyond one machine: workers of Ray, and traces in object storage."""
