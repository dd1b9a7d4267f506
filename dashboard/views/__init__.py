"""Pages: guards, form, then a service or a selector."""
