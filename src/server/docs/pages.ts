// The two viewers of the OpenAPI document. They are scripts of third parties, which must not hold a session, so each page is
// sandboxed: its origin is opaque, and its scripts read no answer that a cookie gave. Otherwise each has the strictest
// content security policy that works; inline scripts are allowed only by their hash.

import { apiPath } from "../../api/endpoint.ts";
import { docsApi } from "../../api/pages.ts";
import { hash } from "node:crypto";
import { brand } from "../../brand.ts";
import type { Page } from "../http/route.ts";

type Viewer = { document: string; viewer: string; script: string; policy: readonly string[]; head: string };

const assetPath = (name: string) => apiPath(docsApi.asset, { name });

/** The document is in the page, because without a cookie the viewers cannot fetch it. */
const readDocument = 'JSON.parse(document.getElementById("document").textContent)';

function page({ document, viewer, script, policy, head }: Viewer): Page {
  const scriptHash = hash("sha256", script, "base64");
  return {
    raw: `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><title>API · ${brand.title}</title>${head}</head>
<body><div id="api"></div><script type="application/json" id="document">${document.replaceAll("<", "\\u003c")}</script>
<script src="${assetPath(viewer)}"></script><script>${script}</script></body></html>
`,
    headers: {
      "Content-Type": "text/html; charset=utf-8",
      // No Cross-Origin-Opener-Policy: the HTML standard makes it an error on a sandboxed page.
      "Content-Security-Policy": [
        "sandbox allow-scripts allow-forms",
        "default-src 'none'",
        `script-src 'self' 'sha256-${scriptHash}'`,
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        ...policy,
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

/** `document`: the OpenAPI document, JSON. */
export function swaggerPage(document: string, publicUrl: string): Page {
  return page({
    document,
    head: `<link rel="stylesheet" href="${assetPath("swagger-ui.css")}">`,
    viewer: "swagger-ui.js",
    script: `SwaggerUIBundle({
  spec: ${readDocument}, dom_id: "#api", deepLinking: true, validatorUrl: null, plugins: [${drawAll}],
});`,
    // "Try it out" calls the API. For WebKit, nothing is 'self' to the scripts of a sandboxed page.
    policy: ["style-src 'self' 'unsafe-inline'", `connect-src 'self' ${new URL(publicUrl).origin}`],
  });
}

/** `document`: the OpenAPI document, JSON. */
export function redocPage(document: string): Page {
  return page({
    document,
    head: "<style>body{margin:0}</style>",
    viewer: "redoc.js",
    // A sandboxed page cannot download.
    script: `Redoc.init(${readDocument}, { hideDownloadButtons: true }, document.getElementById("api"));`,
    policy: ["style-src 'unsafe-inline'", "connect-src 'none'", "worker-src blob:"],
  });
}
