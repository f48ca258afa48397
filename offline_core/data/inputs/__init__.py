"""Raw columns of logs → observations, and actions → what a log says: the same steps in import, serving and export."""
