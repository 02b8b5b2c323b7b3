"""Tells the broker of the authenticator."""

from app_users import AppUsersFactory

appUsers = AppUsersFactory()
