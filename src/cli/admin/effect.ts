// The effect of a request, as a plan shows it: "change node 7 of acme: groups to web, db".

import type { Request } from "../../api/request.ts";

const secrets = /password|secret|otp|code|token|proof/;
const maxLength = 200;

type Change = Pick<Request<unknown>, "method" | "path" | "body">;

/** The request in one line. Secrets are not shown, and long values are cut. */
export function effectOf({ method, path, body = {} }: Change): string {
  const [, slug, pathInside] = /^\/api\/org\/([^/]+)\/([^?]*)/.exec(path) ?? [];
  const words = (pathInside ?? path.replace(/^\/api\/|\?.*$/g, "").replace(/^org\/$/, "organizations/"))
    .split("/")
    .filter((word) => word !== "");
  const org = slug === undefined ? undefined : decodeURIComponent(slug);
  let what = thingNamed(words);
  if (org !== undefined) what = words.length === 0 ? `organization ${org}` : `${what} of ${org}`;
  const verb = {
    POST: isCollection(words) ? "create" : "carry out",
    PATCH: "change",
    DELETE: "delete",
    GET: "read",
  }[method];
  const fields = Object.entries(body).map(
    ([key, value]) => `${key.replaceAll("_", " ")} ${shownValue(key, value)}`,
  );
  const to = method === "PATCH" ? "set " : "";
  return `${verb} ${what}${fields.length === 0 ? "" : `: ${to}${fields.join(", ")}`}`;
}

/** A POST to a list makes an item; any other one is an action, such as `ca/rotate`. */
const isCollection = (words: readonly string[]) => words.at(-1)?.endsWith("s") === true;

/** `nodes/7/transfer` → "node 7 transfer". */
const thingNamed = (words: readonly string[]) =>
  words
    .map((word, at) =>
      words[at + 1] === undefined && !isCollection(words)
        ? word
        : word.replace(/ies$/, "y").replace(/s$/, ""),
    )
    .map((word) => decodeURIComponent(word).replaceAll("_", " "))
    .join(" ");

function shownValue(key: string, value: unknown): string {
  if (secrets.test(key)) return "(not shown)";
  if (Array.isArray(value) && value.length > 0 && value.every((each) => typeof each === "string"))
    return value.join(", ").slice(0, maxLength);
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > maxLength ? `${text.slice(0, maxLength)}…` : text;
}
