"""Where experience comes from: every kind of file other people keep it in, read as step tables."""
