"""The commands, one module each. They print, and return an exit status; what they print is made elsewhere."""
