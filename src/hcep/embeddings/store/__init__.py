"""Embeddings on disk: Parquet shards, a manifest, and what fills them."""
