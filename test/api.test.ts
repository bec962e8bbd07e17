// The contract of the HTTP API (src/api/): complete, and written in no other place.

import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { apiPath, filledPath, numberParams, type Endpoint } from "../src/api/endpoint.ts";
import { nodesApi } from "../src/api/nodes.ts";
import { request } from "../src/api/request.ts";
import { endpointOf, endpoints } from "../src/api/all-endpoints.ts";
import { registrationTokensApi } from "../src/api/tokens/registration-tokens.ts";
import { since, word } from "../src/api/values.ts";
import { checkAnswer } from "../src/console/contact/checked.ts";
import { sourceFiles, sourceRoot, withoutComments } from "./support/imports.ts";

const text = (file: string) => withoutComments(readFileSync(join(sourceRoot, file), "utf8"));
const outside = sourceFiles().filter((file) => !file.startsWith("api/"));

test("src/api/all-endpoints.ts has each endpoint of each subject", async () => {
  const files = sourceFiles().filter((file) => file.startsWith("api/"));
  const all = await Promise.all(
    files.map((file): Promise<Record<string, Record<string, Endpoint>>> => import(join(sourceRoot, file))),
  );
  const declared = all.flatMap((module) =>
    Object.entries(module)
      .filter(([name]) => name.endsWith("Api"))
      .flatMap(([, subject]) => Object.values(subject).map(({ name }) => name)),
  );
  expect(declared.length).toBeGreaterThan(20);
  expect(endpoints.map(({ name }) => name).sort()).toEqual(declared.sort());
});

test("GET and DELETE carry a query, the others a body: callers rely on it", () => {
  const wrong = endpoints.filter(({ method, body, query }) =>
    method === "GET" || method === "DELETE" ? body !== undefined : query !== undefined,
  );
  expect(wrong.map(({ name }) => name)).toEqual([]);
});

test("a path is of one endpoint, in whichever order they are asked", () => {
  const filled = ({ path, patterns }: Endpoint) =>
    path.replace(/{(\w+)}/g, (_, name: string) =>
      patterns?.[name] === undefined ? (numberParams.some((each) => each === name) ? "7" : "word") : "a.tar",
    );
  // All pages of the console but its files: the files come first.
  const others = endpoints.filter(({ path }) => path !== "/console/{rest}");
  for (const among of [others, others.toReversed()])
    for (const each of others)
      expect([each.name, endpointOf(each.method, filled(each), among)?.name]).toEqual([each.name, each.name]);
  expect(endpointOf("GET", "/api/org/acme/nodes/word/")).toBeUndefined();
});

describe("written once", () => {
  test("no path of the API stands outside of src/api/, but in words for people and in the path of a cookie", () => {
    const allowed = ["cli/server/setup-steps.ts", "server/http/cookies.ts"];
    // Not the paths of imported files.
    const within = outside.filter((file) => /(?<![.\w])\/api\//.test(text(file).replace(/"\.[^"]+"/g, "")));
    expect(within).toEqual(allowed);
  });

  test("the server declares no endpoint outside of src/api/", () => {
    const declaring = outside.filter((file) => /\banswers: \{\s*\d{3}:/.test(text(file)));
    expect(declaring).toEqual([]);
  });

  test("command line and nodes describe no answer: its schema comes with the request", () => {
    const asking = outside.filter(
      (file) => /^(cli|node)\//.test(file) && /\brequest\(|\bapi\.call\(/.test(text(file)),
    );
    expect(asking.length).toBeGreaterThan(20);
    const own = /\bschema: (?:(?!Schema<)[A-Z]\w+|v\.(?:object|looseObject|array|record)\()|\blooseObject\(/;
    expect(asking.filter((file) => own.test(text(file)))).toEqual([]);
  });

  test("pages describe no answer: its type comes with the path", () => {
    // `T`: a list of anything, whose type comes with the path that it is given.
    const typed = /\b(?:useResource|useList|getAll|get|send|ask)<(?!T>)/;
    const describing = outside.filter(
      (file) =>
        file.startsWith("console/") &&
        file !== "console/contact/api.ts" &&
        file !== "console/contact/resource.ts",
    );
    expect(describing.filter((file) => typed.test(text(file)))).toEqual([]);
  });
});

test("a request has the path, the query or the body, and accepts what newer servers send", () => {
  const slug = "a/b";
  expect(request(nodesApi.list, { slug }, { revoked: "true", search: "é & ü" })).toMatchObject({
    method: "GET",
    path: "/api/org/a%2Fb/nodes/?revoked=true&search=%C3%A9+%26+%C3%BC",
  });
  const { path, body } = request(nodesApi.update, { slug: "acme", id: 7 }, { name: "web" });
  expect([path, body]).toEqual(["/api/org/acme/nodes/7/", { name: "web" }]);
  const { schema } = request(registrationTokensApi.retrieve, { slug: "acme", id: 1 });
  const former = {
    id: 1,
    name: null,
    uses: 1,
    used: 0,
    groups: [],
    is_lighthouse: false,
    node_id: null,
    expires_at: "2026-01-01T00:00:00.000Z",
    created_at: "2026-01-01T00:00:00.000Z",
  };
  expect(v.parse(schema, former)).toEqual(former);
  const newer = { ...former, approved: true, unknown: { deep: 1 } };
  expect(v.parse(schema, newer)).toBe(newer);
  expect(v.is(schema, { ...former, uses: "1" })).toBe(false);
  expect(v.is(v.object({ kind: word(["a"]), at: since("9.0.0", v.number()) }), { kind: "b" })).toBe(true);
});

test("a path without one of its parameters is a defect, not another path", () => {
  expect(() => filledPath("/api/org/{slug}/x/", {})).toThrow("/api/org/{slug}/x/ lacks slug");
});

test("the console's tests fail on an answer that the contract does not declare", () => {
  const path: string = apiPath(nodesApi.list, { slug: "acme" }, { ids: "1" });
  const asked = { method: "GET", path, status: 200 };
  checkAnswer([], asked);
  expect(() => checkAnswer([{ id: 1 }], asked)).toThrow("nodes_list");
});
