"""How common frameworks save to and load from the places of the storage contract, one module a framework.

Nothing is imported here: `torch_dcp` needs torch, `deepspeed` and `megatron` need neither of the two (they handle the
folders that those leave), and `sagemaker` needs the standard library only.
"""
