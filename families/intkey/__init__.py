"""intkey: names with whole numbers that transactions set, increase and decrease."""
