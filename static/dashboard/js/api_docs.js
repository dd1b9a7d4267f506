// The page that explains the API: Swagger UI with our settings, and the session's CSRF token on what it sends.

const settings = JSON.parse(document.getElementById("swagger-settings").textContent);
const token = document.body.dataset.csrfToken;

SwaggerUIBundle({
  ...settings,
  dom_id: "#swagger-ui",
  presets: [SwaggerUIBundle.presets.apis],
  validatorUrl: null,
  requestInterceptor: (request) => {
    request.headers["X-CSRFToken"] = token;
    return request;
  },
});
