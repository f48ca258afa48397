"""The field's algorithms, on the field's tasks, beside the libraries that people use now."""
