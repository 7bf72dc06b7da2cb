// Shows the service's description. A token is asked for where the service wants one; it stays in this page.
"use strict";
const documentAt = document.body.dataset.document;
const form = document.getElementById("token");
const trouble = document.getElementById("trouble");

function headers(token) {
  return token ? { authorization: `Bearer ${token}` } : {};
}

async function show(token) {
  const answer = await fetch(documentAt, { headers: headers(token) });
  form.hidden = answer.status !== 401;
  trouble.hidden = answer.ok || (answer.status === 401 && !token);
  if (!answer.ok) {
    const told = await answer.json().catch(() => ({ error: answer.statusText }));
    trouble.textContent = `${answer.status} ${told.code || ""} ${told.error || ""} ${told.remedy || ""}`;
    return;
  }
  SwaggerUIBundle({
    spec: await answer.json(),
    dom_id: "#viewer",
    deepLinking: true,
    validatorUrl: null,
    requestInterceptor: (request) => {
      Object.assign(request.headers, headers(token));
      return request;
    },
  });
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  show(document.getElementById("shown").value.trim());
});
show("");
