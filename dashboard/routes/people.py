"""Addresses: signing in, one's own account, users, audit."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboard.views import account, api_tokens, audit, users

urlpatterns: list[URLPattern | URLResolver] = [
    path("login/", account.SignIn.as_view(), name="login"),
    path("logout/", account.sign_out, name="logout"),
    path("account/password/", account.ChangePassword.as_view(), name="password_change"),
    path("account/preferences/", account.preferences, name="preferences"),
    path("account/tokens/", api_tokens.api_tokens, name="api_tokens"),
    path("account/tokens/<int:pk>/revoke/", api_tokens.api_token_revoke, name="api_token_revoke"),
    path("audit/", audit.audit, name="audit"),
    path("audit/csv/", audit.audit_csv, name="audit_csv"),
    path("audit/<int:pk>/", audit.audit_entry, name="audit_entry"),
    path("users/", users.users, name="users"),
    path("users/add/", users.user_add, name="user_add"),
    path("users/unlock/", users.user_unlock, name="user_unlock"),
    path("users/<int:pk>/", users.user, name="user"),
    path("users/<int:pk>/password/", users.user_password, name="user_password"),
    path("users/<int:pk>/delete/", users.user_delete, name="user_delete"),
]
