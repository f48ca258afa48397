"""From a log to a policy and a word on its worth: our ten lines, and the script that people glue together of libraries."""
