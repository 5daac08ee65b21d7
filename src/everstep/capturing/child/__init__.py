"""The folder in front of PYTHONPATH in processes that captured programs start. See `everstep.capturing.children`."""
