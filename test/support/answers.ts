// Watches all answers of the servers of tests: each status and error code must stand in the OpenAPI document.

import * as v from "valibot";
import { makeOpenApi } from "../../src/server/docs/openapi.ts";
import type { App } from "../../src/server/app.ts";
import { ErrorBody } from "../../src/protocol/error-body.ts";

const Response = v.looseObject({ description: v.string() });
const Document = v.looseObject({
  paths: v.record(
    v.string(),
    v.record(v.string(), v.looseObject({ responses: v.record(v.string(), Response) })),
  ),
  components: v.looseObject({ responses: v.record(v.string(), Response) }),
});

/** Made once a process: all servers have the same routes, except those for releases. */
const documents = new Map<number, v.InferOutput<typeof Document>>();

export function watchAnswers(app: App): { app: App; requireDocumented(): void } {
  const undocumented = new Set<string>();
  const fetch: App["fetch"] = async (request, edge) => {
    const { method, url } = request;
    const response = await app.fetch(request, edge);
    const path = templateOf(new URL(url).pathname, app);
    if (path !== undefined) {
      const fault = await faultOf(method === "HEAD" ? "GET" : method, path, response, app);
      if (fault !== undefined) undocumented.add(fault);
    }
    return response;
  };
  return {
    app: { ...app, fetch },
    /** Called at the end of a test: a client in between would take the failure for one of the network. */
    requireDocumented() {
      if (undocumented.size > 0)
        throw new Error(`The OpenAPI document does not name:\n${[...undocumented].join("\n")}`);
    },
  };
}

async function faultOf(
  method: string,
  path: string,
  response: globalThis.Response,
  app: App,
): Promise<string | undefined> {
  const { status } = response;
  // Redirects, and preflights of browsers, are no operations of a path.
  if (status === 301 || status === 308 || (method === "OPTIONS" && status === 204)) return undefined;
  if (!documents.has(app.routes.length))
    documents.set(app.routes.length, v.parse(Document, makeOpenApi(app.routes, "https://control.example")));
  const document = documents.get(app.routes.length);
  const code = status < 400 ? undefined : await codeOf(response);
  const shown = `${method} ${path}: ${status}${code === undefined ? "" : ` ${code}`}`;
  const operations = document?.paths[path] ?? {};
  const own = operations[method.toLowerCase()];
  // Credentials are checked before the method: what any operation of the path answers can come.
  const described =
    own === undefined
      ? [
          document?.components.responses["MethodNotAllowed"],
          ...Object.values(operations).map(({ responses }) => responses[status]),
        ]
      : [own.responses[status]];
  const isNamed = described.some(
    (each) => each !== undefined && (code === undefined || each.description.includes(`\`${code}\``)),
  );
  return isNamed ? undefined : shown;
}

async function codeOf(response: globalThis.Response): Promise<string | undefined> {
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), ErrorBody), await response.clone().text());
  return parsed.success ? parsed.output.code : undefined;
}

/** `/api/org/acme/` → `/api/org/{slug}/`, as in the document. */
function templateOf(pathname: string, { routes }: App): string | undefined {
  const found = routes.find(({ path }) => patternOf(path).test(pathname));
  return found?.path.replaceAll(/:([a-z_]+)(\{[^/]*)?/g, "{$1}");
}

const patterns = new Map<string, RegExp>();

function patternOf(path: string): RegExp {
  const known = patterns.get(path);
  if (known !== undefined) return known;
  const pattern = new RegExp(
    `^${path.replaceAll(/:[a-z_]+(?:\{([^/]*)\})?(?=\/|$)/g, (_, own: string | undefined) => own ?? "[^/]+")}$`,
  );
  patterns.set(path, pattern);
  return pattern;
}
