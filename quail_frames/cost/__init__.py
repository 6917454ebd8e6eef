"""The cost model: work, device and model data, roofline seconds, budgets and priced choices. May import `plan` only."""
