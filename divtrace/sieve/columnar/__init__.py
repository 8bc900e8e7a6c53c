"""The sieve for Parquet: compares columns of whole row groups, and rows only where columns differ."""
