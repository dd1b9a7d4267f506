"""Changes: keyword-only, permitted by the view, audited here."""
