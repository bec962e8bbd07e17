// The real application in process, on a real SQLite file or PostgreSQL, with a clock that tests set.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeLog } from "../../src/base/log.ts";
import { makeApp, type App } from "../../src/server/app.ts";
import { operator } from "../../src/server/audit/record.ts";
import { addMember } from "../../src/server/users/members.ts";
import { makePasswords } from "../../src/server/users/sign-in/hash-passwords.ts";
import { createOrganization } from "../../src/server/organizations/organizations.ts";
import type { Organization } from "../../src/api/organizations.ts";
import type { Role } from "../../src/api/endpoint.ts";
import type { ServerOptions } from "../../src/server/options.ts";
import type { Database } from "../../src/server/store/database.ts";
import { openClock } from "../../src/server/store/clock.ts";
import { openSqlite } from "../../src/server/store/sqlite/sqlite.ts";
import { realSystem, type System } from "../../src/base/system.ts";
import { watchAnswers } from "./answers.ts";
import { lendDatabase } from "./lent-postgres.ts";
import { temporaryDirectory } from "./temporary.ts";

export type Answer = { status: number; headers: Headers; text: string; json: unknown };

export type RequestOptions = {
  token?: string;
  body?: unknown;
  /** Sent unchanged, instead of `body`. */
  raw?: string | Uint8Array<ArrayBuffer>;
  headers?: Record<string, string>;
  address?: string;
};

/**
 * `steppedMs`: by how much the wall clock was set, while no time passed. `confirmedMs`: how much of that the server
 * believes. `uptimeMs`: since the machine started, at the beginning.
 */
export type TestClock = {
  ms: number;
  steppedMs: number;
  confirmedMs: number;
  bootId: string;
  uptimeMs: number;
};

export type TestServer = AsyncDisposable & {
  app: App;
  db: Database;
  log: string[];
  clock: TestClock;
  /** The clock of the machine. */
  machine: Pick<System, "now" | "bootTime" | "monotonic">;
  send(method: string, path: string, options?: RequestOptions): Promise<Answer>;
  /** Creates a user with this password and returns an access token. */
  person(email: string, options?: { isStaff?: boolean }): Promise<string>;
  organization(slug: string, network?: string): Promise<Organization>;
  join(org: Organization, email: string, role: Role): Promise<void>;
};

export const password = "correct horse battery";
/** Quick to make and to check: the real cost is high by design, and most tests are not about it. */
const quickPasswords = { memoryCost: 64, timeCost: 1 };
const passwordHash = makePasswords(quickPasswords).hash(password);

// test/e2e/postgres-api.test.ts runs the same tests on PostgreSQL, whose directory it gives.
const cluster = process.env["TEST_POSTGRES"];
/** Loops that are about our own code, not about the database, are shorter there. */
export const onPostgres: boolean = cluster !== undefined;

export type TestServerOptions = Partial<
  Pick<
    ServerOptions,
    | "publicUrl"
    | "mail"
    | "releasesDirectory"
    | "releaseKeys"
    | "webhookNetworks"
    | "accessLifetimeS"
    | "secretKey"
    | "dataDirectory"
    | "retention"
  >
> & {
  open?: typeof openTemporary;
  clock?: Partial<TestClock>;
  /** Replaces the network, real time in sleeps, and the executable. */
  network?: Partial<
    Pick<ServerOptions["system"], "fetch" | "lookup" | "lookupTexts" | "sleep" | "executable">
  >;
};

export async function makeTestServer(options: TestServerOptions = {}): Promise<TestServer> {
  const { open = openTemporary, network = {}, clock: asked, ...others } = options;
  const start = Date.UTC(2026, 10, 21);
  const clock = {
    ms: start,
    steppedMs: 0,
    confirmedMs: 0,
    bootId: "test",
    uptimeMs: 86_400_000,
    ...asked,
  };
  const system = {
    ...realSystem(),
    ...network,
    now: () => clock.ms + clock.steppedMs,
    monotonic: () => clock.ms,
    bootTime: () => ({
      id: clock.bootId,
      isShared: true,
      ms: clock.ms - start + clock.confirmedMs + clock.uptimeMs,
    }),
  };
  const { db, dispose } = await open(system.now);
  const lines: string[] = [];
  const log = makeLog({ verbose: true, write: (line) => lines.push(line), now: system.now, stamped: true });
  const made = await makeApp({
    db,
    system,
    clock: await openClock(db, system),
    log,
    secretKey: system.random(32),
    publicUrl: "https://control.example",
    accessLifetimeS: 900,
    refreshLifetimeS: 86_400,
    ...others,
  });
  const { app, requireDocumented } = watchAnswers(made);
  const { services } = app;
  services.passwords = makePasswords(quickPasswords);

  const send: TestServer["send"] = async (method, path, options = {}) => {
    const content = options.raw ?? (options.body === undefined ? undefined : JSON.stringify(options.body));
    const request = new Request(`https://control.example${path}`, {
      method,
      headers: {
        ...(options.token === undefined ? {} : { Authorization: `Bearer ${options.token}` }),
        ...(content === undefined ? {} : { "Content-Type": "application/json" }),
        ...options.headers,
      },
      ...(content === undefined ? {} : { body: content }),
    });
    const response = await app.fetch(request, { addressOf: () => options.address ?? "192.0.2.1" });
    const text = await textOf(response);
    const isJson = response.headers.get("content-type")?.startsWith("application/json") === true;
    return {
      status: response.status,
      headers: response.headers,
      text,
      json: isJson && text !== "" ? JSON.parse(text) : undefined,
    };
  };

  return {
    app,
    db,
    log: lines,
    clock,
    machine: system,
    send,
    async person(email, { isStaff = false } = {}) {
      const hashed = await passwordHash;
      const row = await db.write((tx) =>
        tx.get(
          "INSERT INTO users (email, password_hash, is_staff, created_at) VALUES ($1, $2, $3, $4) RETURNING id",
          [email, hashed, isStaff ? 1 : 0, clock.ms],
        ),
      );
      return (await services.sessions.start(Number(row?.["id"]))).access;
    },
    organization: (slug, network = "10.77.0.0/16") =>
      createOrganization(services, { slug, network }, { ownerId: null, ownerEmail: null, actor: operator }),
    async join(org, email, role) {
      await addMember(services, org, { email, role }, { role: "owner", actor: operator });
    },
    async [Symbol.asyncDispose]() {
      app.close();
      await app.flush();
      await db.close();
      await dispose();
      requireDocumented();
    },
  };
}

async function openTemporary(now: () => number): Promise<{ db: Database; dispose(): void | Promise<void> }> {
  if (cluster !== undefined) return lendDatabase(cluster, now);
  const directory = temporaryDirectory();
  const path = join(directory.path, "control.db");
  writeFileSync(path, await (migratedFile ??= makeMigratedFile(now)));
  const db = await openSqlite({ path, now, role: "server" });
  return { db, dispose: () => directory[Symbol.dispose]() };
}

/** A new SQLite file with our tables, made once a process: the migrations take longer than most tests. */
let migratedFile: Promise<Buffer> | undefined;

async function makeMigratedFile(now: () => number): Promise<Buffer> {
  using directory = temporaryDirectory();
  const path = join(directory.path, "control.db");
  await (await openSqlite({ path, now, role: "visitor" })).close();
  return readFileSync(path);
}

/** A stream of events has no end: its first words are enough. */
async function textOf(response: Response): Promise<string> {
  if (response.headers.get("content-type")?.startsWith("text/event-stream") !== true) return response.text();
  const reader = response.body?.getReader();
  const first = await reader?.read();
  await reader?.cancel();
  return new TextDecoder().decode(first?.value);
}
