"""What tests of training storage use."""
