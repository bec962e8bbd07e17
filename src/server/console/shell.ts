// The one HTML page of the console. Everything else is made by its script, so the page's policy allows no inline code,
// no other host, and no text that becomes code.

import { attentionApi } from "../../api/paths/attention.ts";
import { authoritiesApi } from "../../api/certificates/authorities.ts";
import { nodesApi } from "../../api/nodes.ts";
import { pathsApi } from "../../api/paths/paths.ts";
import { relaysApi } from "../../api/paths/relays.ts";
import { apiPath } from "../../api/endpoint.ts";
import { factorsApi } from "../../api/factors/factors.ts";
import { organizationsApi } from "../../api/organizations.ts";
import { ownUserApi } from "../../api/users.ts";
import { brand } from "../../brand.ts";
import type { Page } from "../http/route.ts";
import { importsOf, nameOf } from "./files.ts";

const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self' data:",
  "worker-src 'self'",
  "base-uri 'none'",
  "form-action 'self'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types console",
].join("; ");

/** The mark of the product, so that a tab is found again. Tabs are dark or light as the system is. */
const mark =
  "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24' fill='none' stroke-width='2.5' stroke-linecap='round'>" +
  "<style>.r{stroke:#1b1b26}.t{stroke:#4a45cf}.e{fill:#4a45cf}" +
  "@media(prefers-color-scheme:dark){.r{stroke:#ededf2}.t{stroke:#a7a6f7}.e{fill:#a7a6f7}}</style>" +
  "<path class='r' d='M15.9 6.2A7 7 0 0 0 5.6 14.9M8.1 17.8A7 7 0 0 0 18.4 9.1'/><path class='t' d='M4.6 19.4 19.4 4.6'/>" +
  "<circle class='e' cx='4.4' cy='19.6' r='2.6'/><circle class='e' cx='19.6' cy='4.4' r='2.6'/></svg>";
const icon = `data:image/svg+xml,${encodeURIComponent(mark)}`;

/** What the console asks first; see its `readMe`. The browser asks while it loads the scripts. */
const firstAnswers = [
  apiPath(ownUserApi.retrieve, {}),
  apiPath(organizationsApi.list, {}, { page_size: "1000" }),
  apiPath(factorsApi.retrieve, {}),
];
const firstPage = { page_size: "1000", page: "1" };
const nodes = (slug: string) => apiPath(nodesApi.list, { slug }, firstPage);
/** `file`: the stem of the page's script. `asks`: addresses of the API. */
type FirstNeeds = { file: string; asks?: readonly ((slug: string) => string)[] };
const administration: FirstNeeds = { file: "administration" };
const operation: FirstNeeds = { file: "operation" };
/**
 * What pages need at once, by the segment behind the slug. The addresses must equal those of the page's script to the letter, or the
 * browser asks twice. Every member may read them.
 */
const firstOfPages: Readonly<Record<string, FirstNeeds>> = {
  "": {
    file: "overview",
    asks: [
      (slug) => apiPath(attentionApi.retrieve, { slug }),
      (slug) => apiPath(authoritiesApi.retrieve, { slug }),
      (slug) => apiPath(relaysApi.list, { slug }),
      (slug) => apiPath(pathsApi.groups, { slug }),
    ],
  },
  nodes: { file: "editing", asks: [nodes] },
  map: { file: "map", asks: [nodes, (slug) => apiPath(pathsApi.groups, { slug })] },
  access: { file: "access" },
  alarms: administration,
  activity: { file: "activity" },
  certificates: operation,
  flows: operation,
  past: operation,
  people: administration,
  phones: { file: "joining" },
  rollouts: operation,
  routes: { file: "editing" },
  settings: administration,
  tokens: administration,
  webhooks: administration,
};
/** A slug needs no escaping in HTML. What else stands in an address is not repeated in the page. */
const slugAndPage = /^\/console\/(?:([a-z][a-z0-9-]*)\/)?(?:([a-z]+)\/)?$/;

/** The file of a page, and those that it needs. */
function scriptsOf(page: string): string[] {
  const file = nameOf(`c-${page}`, "js");
  return [file, ...importsOf(file)];
}

/** Scripts and answers that the page at the path needs beside what every page does. */
function firstOf(path: string): { scripts: string[]; answers: string[] } {
  const [isPage, slug, section = ""] = slugAndPage.exec(path) ?? [];
  const first =
    isPage !== undefined && Object.hasOwn(firstOfPages, section) ? firstOfPages[section] : undefined;
  if (first === undefined) return { scripts: [], answers: [] };
  const answers = slug === undefined ? [] : (first.asks ?? []).map((asked) => asked(slug));
  return { scripts: scriptsOf(first.file), answers };
}

/** `hasSession`: the browser sent a session, which may have ended. Without one the console need not ask. */
export function consolePage({ hasSession, path }: { hasSession: boolean; path: string }): Page {
  const main = nameOf("main", "js");
  const first = hasSession ? firstOf(path) : { scripts: scriptsOf("signed-out-pages"), answers: [] };
  // Otherwise the browser finds them only after it has read the first file.
  const scripts = new Set([...importsOf(main), ...first.scripts]);
  const preloads = [...scripts].map((name) => `<link rel="modulepreload" href="/console/files/${name}">`);
  const answers = [...firstAnswers, ...first.answers].map(
    (asked) => `<link rel="preload" as="fetch" crossorigin href="${asked.replaceAll("&", "&amp;")}">`,
  );
  const page = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="description" content="The console of a private network">
<meta name="color-scheme" content="light dark"><link rel="icon" href="${icon}">
<link rel="stylesheet" href="/console/files/${nameOf("style", "css")}">
<script type="module" src="/console/files/${main}" data-worker="/console/files/${nameOf("worker", "js")}"></script>
${preloads.join("")}${hasSession ? answers.join("") : ""}
<title>${brand.title}</title></head>
<body><div id="console"${hasSession ? " data-session" : ""}></div><noscript>The console needs JavaScript. The command line does not: agent admin --help</noscript></body></html>
`;
  return {
    raw: page,
    headers: {
      "Content-Type": "text/html; charset=utf-8",
      "Content-Security-Policy": policy,
      "Cross-Origin-Opener-Policy": "same-origin",
    },
  };
}
