"""What to run: logical rules and how a plan is explained. Imports plan and cost only."""
