// The effect of a request, as a plan shows it: "change node 7 of acme: set groups web, db".

import type { Request } from "../../api/request.ts";
import { clean } from "../../base/log.ts";

/** Fields that hold secrets, also inside of others. The URL of a webhook often has one in it. */
const secretField = /(^|_)(password|secret|otp|code|token|proof|url)s?(_|$)/;
/** Characters of a value. */
const maxLength = 200;

type Change = Pick<Request<unknown>, "method" | "path" | "body">;

/** The request in one line. Secrets are not shown, and long values are cut. */
export function effectOf({ method, path, body = {} }: Change): string {
  const [, slug, pathInside] = /^\/api\/org\/([^/]+)\/([^?]*)/.exec(path) ?? [];
  // `POST /api/org/` creates an organization: the path is read as that of a list, which ends in "s".
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
  const set = method === "PATCH" ? "set " : "";
  return `${verb} ${what}${fields.length === 0 ? "" : `: ${set}${fields.join(", ")}`}`;
}

/** A POST to a list makes an item; any other one is an action, such as `ca/rotate`. */
const isCollection = (words: readonly string[]) => words.at(-1)?.endsWith("s") === true;

/** `nodes/7/transfer` → "node 7 transfer". */
const thingNamed = (words: readonly string[]) =>
  words
    .map((word) => word.replace(/ies$/, "y").replace(/s$/, ""))
    .map((word) => decodeURIComponent(word).replaceAll("_", " "))
    .join(" ");

function shownValue(key: string, value: unknown): string {
  const shown = withoutSecret(key, value);
  if (Array.isArray(shown) && shown.length > 0 && shown.every((each) => typeof each === "string"))
    return clean(shown.join(", "), maxLength);
  return clean(typeof shown === "string" ? shown : JSON.stringify(shown, withoutSecret), maxLength);
}

/** A switch is no secret, such as `revoke_tokens`. */
const withoutSecret = (key: string, value: unknown): unknown =>
  secretField.test(key) && typeof value !== "boolean" ? "(not shown)" : value;
