"""pack --format files."""
def plan(run): raise NotImplementedError
def perform(run, planned): raise NotImplementedError
