"""The allocator's benchmark and test tools: loss model, simple policies, statistics, decision times."""
