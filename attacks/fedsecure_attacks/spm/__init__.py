"""``audit spm``: what the summed parameters of FedSPM, FedDRM and FedAvg tell of one node's members (audit page, 1.3).

Random halves of the node's records are trained again by the plan's own method. B1 traces gradients in the node's update
and in the sum, B2 the routing head, B4 asks the final model.
"""
