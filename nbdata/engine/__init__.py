"""How it is done: one file per verb (plan and perform), the job's state, and the runner that joins them."""
