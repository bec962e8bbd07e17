// The two viewers of the OpenAPI document. Each has the strictest content security policy that works; inline scripts are
// allowed only by their hash.

import { hash } from "node:crypto";
import { brand } from "../../brand.ts";
import type { Reply } from "../http/route.ts";

type Page = { body: string; script: string; policy?: string; head?: string };

function page({ body, script, policy = "", head = "" }: Page): Reply {
  const scriptHash = hash("sha256", script, "base64");
  return {
    raw: `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><title>API · ${brand.title}</title>${head}</head>
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
  return page({
    head: `<link rel="stylesheet" href="/api/docs/assets/swagger-ui.css">`,
    body: `<div id="api"></div><script src="/api/docs/assets/swagger-ui.js"></script>`,
    script: `SwaggerUIBundle({
  url: "/api/schema/", dom_id: "#api", deepLinking: true, validatorUrl: null, plugins: [${drawAll}],
});`,
  });
}

export function redocPage(): Reply {
  return page({
    head: "<style>body{margin:0}</style>",
    body: `<div id="api"></div><script src="/api/docs/assets/redoc.js"></script>`,
    script: `Redoc.init("/api/schema/", {}, document.getElementById("api"));`,
    policy: "worker-src 'self' blob:",
  });
}
