"""Django's settings, all from the one typed configuration (``appliance.config``)."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import dj_database_url

from appliance import VERSION
from appliance.config import current
from appliance.secret_key import secret_key
from broker.config.broker_keys import BROKER_KEYS
from dashboard.probe import split_address

CONFIG = current().values
_DISK_FLOOR = "odradek.disk.floor.bytes"


def _floor_of(broker: Mapping[str, str]) -> int:
    """A value that makes no sense is the broker's to refuse."""
    given = broker.get(_DISK_FLOOR, "")
    return int(given if given.isdecimal() else BROKER_KEYS[_DISK_FLOOR].default or 0)


# In a clone the pages lie beside the packages; a wheel has them within; an image may keep them with
# its environment.
_appliance = Path(__file__).resolve().parent
_places = (_appliance.parent, _appliance / "share", Path(sys.prefix) / "share" / "odradek")
BASE_DIR = next((place for place in _places if (place / "templates").is_dir()), _places[-1])
DATA_DIR = CONFIG.data.absolute()
ODRADEK_VERSION = VERSION
ODRADEK_CLUSTER = CONFIG.cluster
ODRADEK_CLIENT_PROPERTIES = CONFIG.client_properties
ODRADEK_DISK_FLOOR = _floor_of(CONFIG.broker)
ODRADEK_SPARK_HOME = CONFIG.spark_home
ODRADEK_SPARK_MASTER = CONFIG.spark_master
ODRADEK_SPARK_SETTINGS = CONFIG.spark
ODRADEK_LISTEN = CONFIG.listen or "127.0.0.1:9092"
ODRADEK_METRICS_TOKEN = CONFIG.metrics_token.get_secret_value()
ODRADEK_PUBLIC_URL = CONFIG.public_url.rstrip("/")
ODRADEK_TRUSTED_PROXIES = CONFIG.trusted_proxies

DEBUG = False
SECRET_KEY = secret_key(CONFIG.secret_key.get_secret_value(), DATA_DIR)
USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False
LANGUAGE_CODE = "en"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "appliance.urls"
ASGI_APPLICATION = "appliance.asgi.application"
APPEND_SLASH = True

# Addresses

FORCE_SCRIPT_NAME = CONFIG.root_path or None
_public = urlsplit(ODRADEK_PUBLIC_URL)
_is_secure = _public.scheme == "https"
_web_host, _ = split_address(CONFIG.web)
ALLOWED_HOSTS = [
    "localhost",
    "127.0.0.1",
    "[::1]",
    *CONFIG.allowed_hosts,
    *([_public.hostname] if _public.hostname else []),
    *([] if _web_host in ("0.0.0.0", "::", "") else [_web_host]),  # noqa: S104 - compared only
]
CSRF_TRUSTED_ORIGINS = [f"{_public.scheme}://{_public.netloc}"] if _public.netloc else []
if CONFIG.trusted_proxies:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    USE_X_FORWARDED_HOST = True

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "django_htmx",
    "axes",
    "django_celery_beat",
    "dashboard",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "servestatic.middleware.ServeStaticMiddleware",
    "django.middleware.gzip.GZipMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "dashboard.middleware.DashboardMiddleware",
    "axes.middleware.AxesMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "dashboard.context.dashboard",
            ],
            "builtins": ["dashboard.templatetags.show"],
            "loaders": [
                (
                    "django.template.loaders.cached.Loader",
                    [
                        "django.template.loaders.filesystem.Loader",
                        "django.template.loaders.app_directories.Loader",
                    ],
                )
            ],
        },
    }
]

# Data

_sqlite = {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": DATA_DIR / "odradek.db",
    "OPTIONS": {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": (
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; "
            "PRAGMA mmap_size=134217728; PRAGMA cache_size=-4000;"
        ),
    },
}
_database_url = CONFIG.database_url.get_secret_value()
DATABASES = {
    "default": dj_database_url.parse(_database_url, conn_max_age=60, conn_health_checks=True)
    if _database_url
    else _sqlite
}

# People

AUTH_USER_MODEL = "dashboard.User"
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "overview"
LOGOUT_REDIRECT_URL = "login"
# Several appliances may be open in one browser on one host, told apart by port or prefix. Nodes
# that share a database share its sessions, whatever their directories and passwords are.
_database = urlsplit(_database_url)
_sessions_at = (
    f"{_database.hostname}{_database.port}{_database.path}" if _database_url else DATA_DIR
)
_cookie_name = (
    "odradek_" + hashlib.sha256(f"{_sessions_at}{CONFIG.root_path}".encode()).hexdigest()[:8]
)
SESSION_COOKIE_NAME = _cookie_name
CSRF_COOKIE_NAME = _cookie_name + "_csrf"
SESSION_COOKIE_PATH = CSRF_COOKIE_PATH = CONFIG.root_path or "/"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _is_secure
SESSION_COOKIE_AGE = 14 * 24 * 3600
CSRF_COOKIE_HTTPONLY = True
CSRF_FAILURE_VIEW = "dashboard.views.errors.csrf_failure"
# Ten failures of a name from one address within 15 minutes shut that pair out (dashboard.lockout).
AXES_HANDLER = "dashboard.lockout.LockoutHandler"
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_CLIENT_IP_CALLABLE = "dashboard.addresses.lockout_address"
AXES_LOCKOUT_CALLABLE = "dashboard.lockout.locked_out_page"
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_RESET_ON_SUCCESS = True
AXES_DISABLE_ACCESS_LOG = True
AXES_ENABLE_ADMIN = False
AXES_VERBOSE = False

# What a browser may do

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "object-src": ["'none'"],
        "base-uri": ["'none'"],
        "form-action": ["'self'"],
        "frame-ancestors": ["'none'"],
    }
}
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CONTENT_TYPE_NOSNIFF = True
X_FRAME_OPTIONS = "DENY"
if _is_secure:
    SECURE_HSTS_SECONDS = 3600
DATA_UPLOAD_MAX_MEMORY_SIZE = 8 * 1024 * 1024

# Files that never change under their address: it carries a digest of them all.


def _static_digest() -> str:
    digest = hashlib.sha256(VERSION.encode())
    for path in sorted((BASE_DIR / "static").rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(BASE_DIR)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _swagger() -> list[Path]:
    """Swagger UI lies in django-ninja, which is not imported before somebody asks the API."""
    found = find_spec("ninja")
    return [Path(place, "static") for place in (found and found.submodule_search_locations) or ()]


STATICFILES_DIRS = [BASE_DIR / "static", *_swagger()]
# Whole, prefix and all: Django would add the prefix of whichever thread asks first.
STATIC_URL = f"{CONFIG.root_path}/static/{_static_digest()}/"
SERVESTATIC_USE_FINDERS = True
SERVESTATIC_AUTOREFRESH = False
SERVESTATIC_MAX_AGE = 365 * 24 * 3600

# Log lines go to the supervisor, which writes the program's name before them.

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(levelname)s %(name)s: %(message)s"}},
    "filters": {"limit": {"()": "appliance.log_limit.RequestLogLimit"}},
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "stream": sys.stderr,
            "formatter": "line",
            "filters": ["limit"],
        }
    },
    "root": {"handlers": ["stderr"], "level": CONFIG.log_level},
    "loggers": {
        "django.channels.server": {"level": "WARNING"},
        "daphne": {"level": "WARNING"},
        "axes": {"level": "WARNING"},
        # While a broker is away it says so several times a second; the live tail says it itself.
        "aiokafka": {"level": "CRITICAL"},
    },
}

# Mail of alerts

EMAIL_HOST = CONFIG.smtp_host
EMAIL_PORT = CONFIG.smtp_port
EMAIL_HOST_USER = CONFIG.smtp_user
EMAIL_HOST_PASSWORD = CONFIG.smtp_password.get_secret_value()
EMAIL_USE_TLS = CONFIG.smtp_security == "starttls"
EMAIL_USE_SSL = CONFIG.smtp_security == "tls"
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = CONFIG.smtp_from

# Celery

CELERY_TIMEZONE = "UTC"
