"""Turns traces of any form into sorted Parquet that says where every record came from."""
