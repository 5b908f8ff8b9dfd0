import torch

# The models of the tests are too small to gain from a second thread, and lose much when cores are shared.
torch.set_num_threads(1)
