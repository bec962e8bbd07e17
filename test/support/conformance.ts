// Checks an answer against the OpenAPI document: its status, headers and body must be described, and a body may have no
// undescribed key. Reads the document as any client would.

import Ajv from "ajv/dist/2020.js";
import * as v from "valibot";
import type { Answer } from "./server.ts";

const Reference = v.strictObject({ $ref: v.pipe(v.string(), v.startsWith("#/")) });
const Described = v.looseObject({
  headers: v.optional(v.record(v.string(), v.looseObject({ required: v.boolean() })), {}),
  content: v.optional(v.record(v.string(), v.looseObject({ schema: v.optional(v.unknown()) })), {}),
});
const Operation = v.looseObject({ operationId: v.string(), responses: v.record(v.string(), Described) });
const Document = v.looseObject({ paths: v.record(v.string(), v.record(v.string(), Operation)) });

/** Sent with every answer: headers of RFC 9110 and security headers. */
const always: Record<string, RegExp> = {
  "x-content-type-options": /^nosniff$/,
  "x-frame-options": /^DENY$/,
  "referrer-policy": /^no-referrer$/,
  "content-security-policy": /default-src 'none'/,
  // Files of the console carry a hash of their content in their names.
  "cache-control": /no-store|no-cache|private|immutable/,
};

export type Conformance = {
  /** Describes each deviation from the document. Empty if there is none. */
  faults(method: string, path: string, answer: Answer): string[];
  operationIds: string[];
};

/** `path` as in the document: `/api/org/{slug}/`. */
export function readDocument(json: unknown): Conformance {
  const document = v.parse(Document, json);
  const ajv = new Ajv({ strict: false, allErrors: true });
  ajv.addSchema(closed(document), "api");
  const pointer = (parts: readonly string[]) =>
    `api#/${parts.map((part) => encodeURIComponent(part.replaceAll("~", "~0").replaceAll("/", "~1"))).join("/")}`;

  const bodyFaults = (at: readonly string[], json: unknown) => {
    const validate = ajv.getSchema(pointer(at));
    if (validate === undefined) return [`nothing at ${pointer(at)}`];
    return validate(json) === true
      ? []
      : (validate.errors ?? []).map((each) => `body${each.instancePath} ${each.message ?? ""}`);
  };
  const faults: Conformance["faults"] = (method, path, answer) => {
    const found = Object.entries(always)
      .filter(([name, shape]) => !shape.test(answer.headers.get(name) ?? ""))
      .map(([name]) => `header ${name} is ${answer.headers.get(name)}`);
    const operation = document.paths[path]?.[method.toLowerCase()];
    if (operation === undefined) {
      return [...found, ...bodyFaults(["components", "schemas", "Error"], answer.json)];
    }
    const described = operation.responses[String(answer.status)];
    if (described === undefined) return [...found, `status ${answer.status} is not documented`];
    for (const [name, { required }] of Object.entries(described.headers)) {
      if (required && !answer.headers.has(name)) found.push(`header ${name} is missing`);
    }
    const type = answer.headers.get("content-type")?.split(";")[0] ?? "";
    const [documented] = Object.keys(described.content);
    if (documented === undefined) return answer.text === "" ? found : [...found, "a body is not documented"];
    if (type !== documented && type !== "") return [...found, `type ${type} instead of ${documented}`];
    const schema = described.content[documented]?.schema;
    if (schema === undefined) return found;
    const at = ["paths", path, method.toLowerCase(), "responses", String(answer.status)];
    // Shared schemas are compiled once, not for each of the hundreds of answers that name them.
    const shared = v.is(Reference, schema) ? schema.$ref.slice(2).split("/") : undefined;
    return [...found, ...bodyFaults(shared ?? [...at, "content", documented, "schema"], answer.json)];
  };
  const operationIds = Object.values(document.paths).flatMap((methods) =>
    Object.values(methods).map((each) => each.operationId),
  );
  return { faults, operationIds };
}

/** The document with objects closed: an answer may have only the documented properties. */
function closed(value: object): object {
  return Object.fromEntries(
    Object.entries({ ...value, ...closing(value) }).map(([key, each]: [string, unknown]) => [
      key,
      Array.isArray(each)
        ? each.map((item: unknown) => (isObject(item) ? closed(item) : item))
        : isObject(each)
          ? closed(each)
          : each,
    ]),
  );
}

function closing(value: object): object {
  const isSchema = "type" in value && value.type === "object" && "properties" in value;
  return isSchema && !("additionalProperties" in value) ? { additionalProperties: false } : {};
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}
