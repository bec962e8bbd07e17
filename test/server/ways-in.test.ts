// Every text that comes from outside passes the gate of src/base/text.ts: well-formed, without null characters, with a maximum.
// The tests enumerate the ways in, so a new one that does not pass fails here.

import { GroupName } from "../../src/protocol/values.ts";
import { afterAll, expect, test } from "bun:test";
import { join } from "node:path";
import * as v from "valibot";
import { AppError } from "../../src/base/errors.ts";
import { parse } from "../../src/server/http/parse-input.ts";
import * as admission from "../../src/server/oidc/admission.ts";
import { PolicyFile } from "../../src/server/policy/policy-file.ts";
import * as foreignPolicy from "../../src/server/policy-files/import-rules.ts";
import { PastReport } from "../../src/api/history/past.ts";
import { OrderKey } from "../../src/protocol/values.ts";
import { Email } from "../../src/api/values.ts";
import { ClientData } from "../../src/server/users/factors/passkeys.ts";
import * as archive from "../../src/server/retention/archive-file.ts";
import { ArchiveHeader } from "../../src/server/audit/archive-cut.ts";
import { allRoutes } from "../../src/server/routes.ts";
import * as acme from "../../src/server/tls/acme/messages.ts";
import { Cidr } from "../../src/engine/allowed-settings.ts";
import { notGated, schemasOf } from "../support/maxima.ts";
import * as protocol from "../support/protocol.ts";
import { makeTestServer } from "../support/server.ts";

const server = await makeTestServer();
afterAll(() => server[Symbol.asyncDispose]());
const root = join(import.meta.dir, "../../src");

/** Their parts are checked one by one, by `PathsReport` and `RelayedReport` of the protocol. */
const anyKind = [
  "nodes_checkin body paths: unknown",
  "nodes_checkin body relayed: unknown",
  "nodes_checkin body flows: unknown",
];

test("every text of every request's body and query passes the gate", () => {
  const found = allRoutes(server.app.services).flatMap(({ name, takes }) =>
    (["body", "query"] as const).flatMap((kind) =>
      notGated(takes[kind]).map((each) => `${name} ${kind} ${each}`),
    ),
  );
  expect(found).toEqual(anyKind);
});

/** Files of the server with a schema for what others wrote: providers, ACME servers, policies, files. */
const outside: Record<string, readonly unknown[]> = {
  "server/oidc/admission.ts": [admission.Subject, admission.Called, admission.Groups, Email],
  "server/flows/flow-reports.ts": [protocol.FlowsReport],
  "server/paths/relayed.ts": [protocol.RelayedReport],
  "server/paths/path-reports.ts": [protocol.PathsReport],
  "server/users/factors/passkeys.ts": [ClientData],
  "server/policy-files/import-policy.ts": [foreignPolicy.Original],
  "server/policy-files/import-rules.ts": [foreignPolicy.Words],
  "server/policy/read-policy.ts": [PolicyFile],
  "server/history/verify-report.ts": [PastReport, OrderKey],
  "server/retention/archive-file.ts": [ArchiveHeader, archive.EventLine],
  "server/tls/acme/client.ts": schemasOf(acme).map(([, schema]) => schema),
  "server/import-export/import-hosts.ts": [GroupName, protocol.NodeName],
  "server/import-export/import-roles.ts": [protocol.PublicAddress, Cidr],
};
/** Files that parse only what this server wrote: its rows, its sealed values, what a schema has seen already. */
const own = [
  "server/audit/archive-cut.ts",
  "server/audit/read.ts",
  "server/backup/carry-rules.ts",
  "server/config/flow-timeout.ts",
  "server/history/past-rows.ts",
  "server/history/read-past.ts",
  "server/config/next-seal.ts",
  "server/config/seals.ts",
  "server/nodes/nodes.ts",
  "server/nodes/contact/orders.ts",
  "server/nodes/contact/plane-fallback.ts",
  "server/nodes/contact/refused-by-seal.ts",
  "server/nodes/contact/silence.ts",
  "server/oidc/sign-in-flow.ts",
  "server/users/sessions/login-codes.ts",
  "server/policy-files/apply.ts",
  "server/policy-files/confirm.ts",
  "server/policy/edit-policy.ts",
  "server/organizations/organizations.ts",
  "server/organizations/patch-organization.ts",
  "server/policy/policy-nodes.ts",
  "server/policy/rules.ts",
  "server/policy/stored-rules.ts",
  "server/retention/creators.ts",
  "server/rollout/rollouts.ts",
  "server/rollout/rotation-schedule.ts",
  "server/store/acme-state.ts",
  "server/store/clock.ts",
  "server/store/nodes.ts",
  "server/store/shared-throttle.ts",
  "server/store/table.ts",
];
/** Of requests, above. */
const requests = ["server/http/parse-input.ts"];

test("every file of the server that parses something is known, and what is foreign passes the gate", async () => {
  const parsing: string[] = [];
  for (const file of new Bun.Glob("server/**/*.ts").scanSync(root)) {
    const text = await Bun.file(join(root, file)).text();
    if (/\bv\.(parse|safeParse|parser|safeParser|is|assert)\(/.test(text)) parsing.push(file);
  }
  expect(parsing.sort()).toEqual([...Object.keys(outside), ...own, ...requests].sort());
  const found = Object.entries(outside).flatMap(([file, schemas]) =>
    schemas.flatMap((schema) => notGated(schema).map((each) => `${file} ${each}`)),
  );
  // Values of any kind that nothing reads, or that are parsed again.
  expect([...new Set(found)].sort()).toEqual([
    "server/policy-files/import-policy.ts acls[]{}: unknown",
    "server/policy-files/import-policy.ts grants[]{}: unknown",
    "server/policy-files/import-policy.ts tagowners{}: unknown",
    "server/policy-files/import-policy.ts tests[]{}: unknown",
    "server/tls/acme/client.ts meta.profiles{}: unknown",
  ]);
});

test("of what is long and wrong, each way in looks for the first error alone: the others take a hundred times as long", async () => {
  const many = Array.from({ length: 500 }, () => ({}));
  for (const { name, takes } of allRoutes(server.app.services)) {
    const { body } = takes;
    if (body === undefined) continue;
    // Each field of the body is such a list; else the body is one.
    const fields = "entries" in body ? Object.keys(Object(body.entries)) : [];
    const value = fields.length === 0 ? { many } : Object.fromEntries(fields.map((key) => [key, many]));
    let errors: object = {};
    try {
      parse(body, value);
    } catch (error) {
      errors = error instanceof AppError ? (error.details.errors ?? {}) : {};
    }
    expect([name, Object.keys(errors).length]).toEqual([name, 1]);
  }
  const whole: string[] = [];
  for (const file of Object.keys(outside)) {
    const calls = (await Bun.file(join(root, file)).text()).matchAll(/\bv\.(?:safeP|p)arse\((\w+),[^;\n]*/g);
    for (const [call, schema = ""] of calls)
      if (!call.includes("abortEarly")) whole.push(`${file.split("/").at(-1)} ${schema}`);
  }
  // Of a text, an address and a port; and policies, whose parts are short.
  expect(whole).toEqual([
    "admission.ts Subject",
    "admission.ts Email",
    "client.ts AcmeUrl",
    "import-roles.ts Place",
    "import-roles.ts Cidr",
  ]);
});

test("a short body that is wrong is told all its errors", () => {
  const body = v.strictObject({ name: Email, list: v.pipe(v.array(Email), v.maxLength(9)) });
  expect(() => parse(body, { name: 1, list: [2, "ada@example.org", 3] })).toThrow(
    expect.objectContaining({
      details: {
        errors: { name: expect.anything(), "list.0": expect.anything(), "list.2": expect.anything() },
      },
    }),
  );
});

/** Rows of earlier versions. */
const bare = ["server/store/tables/providers.ts"];

test("no other schema refines a text that did not pass the gate", async () => {
  const found: string[] = [];
  for (const file of new Bun.Glob("{server,protocol,pki,release}/**/*.ts").scanSync(root)) {
    const text = await Bun.file(join(root, file)).text();
    if (/v\.pipe\(\s*v\.string\(\)(?!,\s*v\.parseJson)/.test(text)) found.push(file);
  }
  expect(found.sort()).toEqual(bare);
});

test("every text that node and control plane send each other passes the gate", () => {
  const found = schemasOf(protocol).flatMap(([name, schema]) =>
    notGated(schema)
      .filter((each) => !each.endsWith(": unknown"))
      .map((each) => `${name} ${each}`),
  );
  expect(found).toEqual([]);
});

test("a policy with text that no database stores is refused, with its line", async () => {
  const org = await server.organization("acme");
  const token = await server.person("ada@example.org");
  await server.join(org, "ada@example.org", "owner");
  for (const text of ["a\\0b", "\\ud800"]) {
    const policy = `groups:\n  web:\n    description: "${text}"\n`;
    for (const path of ["policy/plan/", "policy/apply/"]) {
      const answer = await server.send("POST", `/api/org/acme/${path}`, { token, body: { policy } });
      expect([answer.status, answer.text]).toEqual([400, expect.stringContaining("Line 3, column")]);
    }
  }
});
