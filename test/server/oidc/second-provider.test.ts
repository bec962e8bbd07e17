// Sign-in by glewlwyd: a provider of another maker than the one of the other tests, with other answers.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { checkLeavers } from "../../../src/server/oidc/gone-at-provider.ts";
import { endUnproven } from "../../../src/server/oidc/unproven-users.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { inCi } from "../../support/debian.ts";
import { noGlewlwyd, startGlewlwyd, type Glewlwyd, type GlewlwydPerson } from "../../support/glewlwyd.ts";
import { registerNode } from "../../support/nodes.ts";
import {
  addProvider,
  begin,
  callback,
  comeBack,
  makeSignInServer,
  sessionIn,
  whereTo,
} from "../../support/oidc-sign-in.ts";
import { makeAcme } from "../../support/people.ts";
import type { TestServer } from "../../support/server.ts";

if (noGlewlwyd !== undefined && inCi) throw new Error(noGlewlwyd);
/** And a second. */
const dayMs = 86_401_000;

describe.skipIf(noGlewlwyd !== undefined)("glewlwyd", () => {
  let provider: Glewlwyd;
  let server: TestServer;
  let acme: Organization;
  let owner: string;
  let ada: GlewlwydPerson;

  beforeAll(async () => {
    provider = await startGlewlwyd([callback()]);
  });
  afterAll(() => provider[Symbol.asyncDispose]());
  beforeEach(async () => {
    server = await makeSignInServer();
    ({ acme, owner } = await makeAcme(server));
    const username = `ada-${crypto.randomUUID()}`;
    ada = { username, email: "ada@example.org", groups: ["staff", "db admins"] };
    await provider.add(ada);
    const roles = [{ group: "db admins", organization: "acme", role: "admin" as const }];
    await addProvider(server, provider, { creates_users: true, roles, scopes: "openid email groups" });
  });
  afterEach(() => server[Symbol.asyncDispose]());

  /** Comes back with what the provider says, changed by `edit`. */
  async function signIn(edit: (answer: URLSearchParams) => void = () => undefined) {
    const { url, cookie } = await begin(server);
    const back = await provider.signIn(url, ada.username);
    edit(back.searchParams);
    return { back, cookie, answer: await comeBack(server, back, { "__Host-oidc": cookie }) };
  }
  async function anHourLater(): Promise<void> {
    await server.db.write((tx) => tx.run("UPDATE provider_grants SET next_at = 0"));
    await checkLeavers(server.app.services);
  }
  const roleOf = async () =>
    (await server.db.get("SELECT role FROM memberships WHERE user_id > 1 AND org_id = $1", [acme.id]))?.[
      "role"
    ];
  const grants = async () => (await server.db.all("SELECT id FROM provider_grants")).length;

  test("a person signs in by its form, with the role that the group gives; the code counts once", async () => {
    const { back, cookie, answer } = await signIn();
    expect(whereTo(answer)).toEqual([303, "/console/"]);
    const me = await sessionIn(server, answer).send("GET", "/api/user/");
    expect(me.json).toMatchObject({ email: ada.email });
    expect(await roleOf()).toBe("admin");
    const again = await comeBack(server, back, { "__Host-oidc": cookie });
    expect(again.headers.get("location")).toContain("refused=");
  });

  test("an answer in the name of another provider, or for another request, signs nobody in", async () => {
    for (const [name, value] of [
      ["iss", "https://login.example.org"],
      ["state", "another"],
      ["code", "another"],
    ] as const) {
      const { answer } = await signIn((words) => words.set(name, value));
      expect([name, answer.headers.get("location")]).toEqual([name, expect.stringContaining("refused=")]);
    }
    expect(await server.db.all("SELECT 1 FROM browser_sessions WHERE family IS NULL")).toEqual([]);
  });

  test("it is asked every hour, by tokens that it replaces each time, and says who lost a group", async () => {
    await signIn();
    for (let hours = 0; hours < 3; hours++) await anHourLater();
    expect([await grants(), await roleOf()]).toEqual([1, "admin"]);
    await provider.change({ ...ada, groups: ["staff"] });
    await anHourLater();
    expect([await grants(), await roleOf()]).toEqual([1, undefined]);
  });

  test("it refuses the token of a removed person without a reason: after a day of that, the person counts as unproven", async () => {
    const { answer } = await signIn();
    const browser = sessionIn(server, answer);
    const isIn = async () => (await browser.send("GET", "/api/user/")).status === 200;
    const { id } = await registerNode(server, acme, "laptop");
    const send = (method: "POST" | "PATCH", path: string, body: object) =>
      server.send(method, `/api/org/acme/${path}`, { token: owner, body });
    await send("PATCH", "", { revoke_unproven_nodes: true });
    await send("POST", `nodes/${id}/transfer/`, { owner: ada.email });
    const stateOf = async () =>
      (await server.db.get("SELECT state FROM nodes WHERE id = $1", [id]))?.["state"];
    await provider.remove(ada.username);
    await anHourLater();
    await anHourLater();
    await endUnproven(server.app.services);
    expect([await grants(), await isIn(), await stateOf()]).toEqual([1, true, "active"]);
    // The clock of the provider is real: instead of it, what is stored gets older.
    for (const [table, column] of [
      ["provider_grants", "refused_at"],
      ["identities", "last_used_at"],
      ["users", "last_login_at"],
      ["owner_proofs", "given_at"],
      ["organizations", "revoke_unproven_from"],
      ["browser_sessions", "ends_at"],
    ])
      await server.db.write((tx) => tx.run(`UPDATE ${table} SET ${column} = ${column} - ${dayMs}`));
    await anHourLater();
    await endUnproven(server.app.services);
    expect([await grants(), await isIn(), await stateOf()]).toEqual([0, false, "revoked"]);
  });
});
