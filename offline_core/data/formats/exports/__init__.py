"""Where experience goes: datasets written in other people's formats."""
