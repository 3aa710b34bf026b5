"""The engine: a module per verb (plan and perform), the jobs, and the runner that connects them."""
