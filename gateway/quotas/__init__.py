"""What users, remotes and addresses may use in a second and have open, held at the Broker port."""
