"""Settings of listeners, logins, ACLs and quotas, and how names of certificates become principals."""
