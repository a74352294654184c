"""What must hold of the manifests below `kubernetes/`."""
