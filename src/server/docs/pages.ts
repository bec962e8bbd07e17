// The HTML pages of the control plane: sign-in for the docs, the two viewers, the first user, accepting an invitation.
// Each has the strictest content security policy that works; inline scripts are allowed only by their hash.

import { hash } from "node:crypto";
import { brand } from "../../brand.ts";
import type { Reply } from "../http/route.ts";

type Page = { title: string; body: string; script: string; policy?: string; head?: string };

function page({ title, body, script, policy = "", head = "" }: Page, status: number): Reply {
  const scriptHash = hash("sha256", script, "base64");
  return {
    status,
    raw: `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><title>${title} · ${brand.title}</title>${head}</head>
<body>${body}<script>${script}</script></body></html>
`,
    headers: {
      "Content-Type": "text/html; charset=utf-8",
      "Cross-Origin-Opener-Policy": "same-origin",
      "Content-Security-Policy": [
        "default-src 'none'",
        `script-src 'self' 'sha256-${scriptHash}'`,
        "style-src 'self' 'unsafe-inline'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        ...(policy === "" ? [] : [policy]),
      ].join("; "),
    },
  };
}

const formStyle = `<style>
body{font:16px/1.5 system-ui,sans-serif;max-width:22rem;margin:12vh auto;padding:0 1rem;color:#1b1f24}
label{display:block;margin:1rem 0 .2rem}input{font:inherit;width:100%;box-sizing:border-box;padding:.5rem}
button{font:inherit;margin-top:1.2rem;padding:.5rem 1.2rem}[role=alert]{color:#a40e26;min-height:1.5em}
</style>`;

/** Sends the form's fields as JSON and shows the answer's message. */
const sendScript = (path: string, fields: string, done: string) => `
const form = document.querySelector("form"), alert = document.querySelector("[role=alert]");
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  alert.textContent = "";
  try {
    const answer = await fetch("${path}", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(${fields}),
    });
    const body = answer.status === 204 ? {} : await answer.json();
    if (answer.ok) { ${done} }
    else alert.textContent = Object.values(body.errors ?? {}).flat().join(" ") || body.detail;
  } catch {
    alert.textContent = "The server did not answer. Try again.";
  }
});
`;

/** Answered with 401 instead of a docs page. */
export function signInPage(): Reply {
  return page(
    {
      title: "Sign in",
      head: formStyle,
      body: `<h1>Sign in</h1><p>Only staff may read the documentation of this control plane.</p>
<form><label for="email">E-mail</label><input id="email" name="email" type="email" autocomplete="username" required autofocus>
<label for="password">Password</label><input id="password" name="password" type="password" autocomplete="current-password" required>
<label for="otp">Code of your second factor, if you have one</label><input id="otp" name="otp" autocomplete="one-time-code">
<button>Sign in</button><p role="alert"></p></form>`,
      script: sendScript(
        "/api/docs/sign_in/",
        "{ email: form.email.value, password: form.password.value, otp: form.otp.value || undefined }",
        "location.reload();",
      ),
    },
    401,
  );
}

/** /join/#SECRET. Browsers do not send the fragment, so no log has the secret. The form posts it. */
export function joinPage(): Reply {
  return page(
    {
      title: "Join",
      head: formStyle,
      body: `<h1>You are invited</h1>
<p>Choose a password. If you are a user of this control plane already, enter your present password.</p>
<form><label for="password">Password</label>
<input id="password" name="password" type="password" minlength="8" autocomplete="new-password" required autofocus>
<button>Join</button><p role="alert"></p></form>`,
      script: sendScript(
        "/api/join/",
        "{ secret: location.hash.slice(1), password: form.password.value }",
        `history.replaceState(null, "", location.pathname);
      document.body.textContent = "Welcome to " + body.org_slug + ", " + body.email + ". You can close this page.";`,
      ),
    },
    200,
  );
}

/** /reset/#SECRET */
export function resetPage(): Reply {
  return page(
    {
      title: "New password",
      head: formStyle,
      body: `<h1>Choose a new password</h1>
<form><label for="password">Password</label>
<input id="password" name="password" type="password" minlength="8" autocomplete="new-password" required autofocus>
<button>Set password</button><p role="alert"></p></form>`,
      script: sendScript(
        "/api/password_reset/confirm/",
        "{ secret: location.hash.slice(1), password: form.password.value }",
        `history.replaceState(null, "", location.pathname);
      document.body.textContent = "The new password is set. All sessions have ended. You can close this page.";`,
      ),
    },
    200,
  );
}

/** /setup/#SECRET: the link that a server without users prints. */
export function setupPage(): Reply {
  return page(
    {
      title: "First user",
      head: formStyle,
      body: `<h1>Create the first user</h1>
<p>This user is staff: it may create organizations and read this control plane's documentation.</p>
<form><label for="email">E-mail</label><input id="email" name="email" type="email" autocomplete="username" required autofocus>
<label for="password">Password</label>
<input id="password" name="password" type="password" minlength="8" autocomplete="new-password" required>
<button>Create</button><p role="alert"></p></form>`,
      script: sendScript(
        "/api/setup/",
        "{ secret: location.hash.slice(1), email: form.email.value, password: form.password.value }",
        `history.replaceState(null, "", location.pathname);
      document.body.textContent = "Welcome, " + body.email + ". The documentation is at /api/docs/.";`,
      ),
    },
    200,
  );
}

/**
 * From 150 rows on, Swagger UI draws only those in sight, and the browser's search finds no others. Drawn tag by tag, each
 * list is short.
 */
const drawAll = `() => ({
  wrapComponents: {
    operations: (Operations, { React }) => (props) => {
      const tagged = props.specSelectors.taggedOperations();
      const only = (tag) => ({ ...props.specSelectors, taggedOperations: () => tagged.filter((_, name) => name === tag) });
      return tagged.keySeq().toArray().map((tag) =>
        React.createElement(Operations, { ...props, key: tag, specSelectors: only(tag) }));
    },
  },
})`;

export function swaggerPage(): Reply {
  return page(
    {
      title: "API",
      head: `<link rel="stylesheet" href="/api/docs/assets/swagger-ui.css">`,
      body: `<div id="api"></div><script src="/api/docs/assets/swagger-ui.js"></script>`,
      script: `SwaggerUIBundle({
  url: "/api/schema/", dom_id: "#api", deepLinking: true, validatorUrl: null, plugins: [${drawAll}],
});`,
    },
    200,
  );
}

export function redocPage(): Reply {
  return page(
    {
      title: "API",
      head: "<style>body{margin:0}</style>",
      body: `<div id="api"></div><script src="/api/docs/assets/redoc.js"></script>`,
      script: `Redoc.init("/api/schema/", {}, document.getElementById("api"));`,
      policy: "worker-src 'self' blob:",
    },
    200,
  );
}
