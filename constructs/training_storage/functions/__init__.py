"""Code of Lambda functions: each folder is the asset of one function and needs nothing but the runtime."""
