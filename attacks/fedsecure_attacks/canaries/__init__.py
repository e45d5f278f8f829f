"""``audit canaries``: whether noise, clip and masks are what was accounted, asked of the run itself (audit page, B3).

Random directions go into one node's DP-SGD as records of their own, are clipped with the others, and are looked for in
what leaves (Andrew et al. 2023, "one-shot empirical privacy estimation"; Nasr et al. 2023 for the lower bound).
"""
