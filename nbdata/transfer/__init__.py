"""How bytes move: what is selected, how it lands, what is remembered, what is tried again."""
