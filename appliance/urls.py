"""All addresses: the dashboard's own, nothing else."""

from django.urls import include, path

urlpatterns = [path("", include("dashboard.urls"))]
handler400 = "dashboard.views.errors.bad_request"
handler403 = "dashboard.views.errors.forbidden"
handler404 = "dashboard.views.errors.not_found"
handler500 = "dashboard.views.errors.server_error"
