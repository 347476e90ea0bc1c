"""The declaration of each path: its handlers, parameters, answers and errors, with examples."""
