"""One module per command. They print and return an exit status; what they print is made elsewhere."""
