"""Tests of users whom an LDAP directory knows."""
