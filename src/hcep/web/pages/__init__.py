"""The pages of the explorer, over the engine."""
