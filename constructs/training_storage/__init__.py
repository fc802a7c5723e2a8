"""Plan, price and provision the storage of a training job on AWS."""
