"""Users that an LDAP directory knows: asked on threads, mapped to roles, remembered for a while."""
