// What must hold whichever replica takes a write: two replicas on one PostgreSQL get conflicting requests at the same time.
// docs/design/replicas.md lists the lock or index behind each case.

import { NewEnrollment } from "../../src/api/enrollments.ts";
import { afterAll, beforeAll, expect, test } from "bun:test";
import * as v from "valibot";
import { AppError } from "../../src/base/errors.ts";
import { wordsOfKey } from "../../src/protocol/key-words.ts";
import { fingerprintOfHostKey } from "../../src/pki/keys.ts";
import { makeHostKey } from "../../src/pki/keys.ts";
import { encodePem } from "../../src/pki/bundle.ts";
import { fingerprint, makeCa } from "../../src/pki/nebula.ts";
import { addOfflineAuthority } from "../../src/server/certificates/offline-ca.ts";
import { verifyChains } from "../../src/server/audit/verify.ts";
import { claimDue, queueEvents } from "../../src/server/webhooks/outbox.ts";
import { operator, record } from "../../src/server/audit/record.ts";
import { removeMember } from "../../src/server/offboarding/member-changes.ts";
import { revokeToken } from "../../src/server/offboarding/end-access.ts";
import { setActive } from "../../src/server/offboarding/user-status.ts";
import { addMember } from "../../src/server/users/members.ts";
import { createUser } from "../../src/server/users/users.ts";
import { reauthenticate } from "../../src/server/nodes/lifecycle/reauthentication.ts";
import { startRotation } from "../../src/server/rollout/rotation-commands.ts";
import { openPostgres } from "../../src/server/store/postgres/postgres.ts";
import { authorities } from "../../src/server/store/tables/certificates.ts";
import { createServiceToken } from "../../src/server/users/service-tokens.ts";
import { raiseConfigVersion } from "../../src/server/store/versions.ts";
import type { Organization } from "../../src/api/organizations.ts";
import { browserWith, signInBrowser } from "../support/browser-session.ts";
import { makeKeys, registerNode, registrationToken, sendRegistration } from "../support/nodes.ts";
import { pair, signInTo } from "../support/people.ts";
import { describePostgres, openedAt, useMigrated } from "../support/postgres.ts";
import { makeTestServer, type Answer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describePostgres("two replicas with conflicting requests", () => {
  const createDatabase = useMigrated();
  let replicas: TestServer[];
  let first: TestServer;
  let url: string;
  const secretKey = new Uint8Array(32).fill(7);
  let acme: Organization;
  let owner: string;

  beforeAll(async () => {
    url = await createDatabase();
    const open = openedAt(url);
    first = await makeTestServer({ open, secretKey });
    replicas = [first, await makeTestServer({ open, secretKey })];
    acme = await first.organization("acme");
    owner = await first.person("owner@example.org");
    await first.join(acme, "owner@example.org", "owner");
  }, 120_000);
  afterAll(async () => {
    for (const each of replicas) await each[Symbol.asyncDispose]();
  });

  /** Runs `act` six times on each replica at once. */
  const everywhere = async <T>(act: (on: TestServer, at: number) => Promise<T>): Promise<T[]> =>
    Promise.all(Array.from({ length: 12 }, (_, at) => act(replicas[at % 2] ?? first, at)));
  const statuses = (answers: readonly Answer[]) => {
    const counts: Record<number, number> = {};
    for (const { status } of answers) counts[status] = (counts[status] ?? 0) + 1;
    return counts;
  };
  const post = (on: TestServer, path: string, body: unknown, token = owner) =>
    on.send("POST", `/api/org/acme/${path}`, { token, body });
  const count = async (sql: string, params: (string | number)[] = []) =>
    Number((await first.db.get(`SELECT count(*) AS n FROM ${sql}`, params))?.["n"]);
  /** A replica that no notice reaches, as one whose connection is slow. */
  const openDeaf = async () => {
    const deaf = async (now: () => number) => ({
      db: { ...(await openPostgres({ url, now })), listen: () => () => undefined },
      dispose: () => undefined,
    });
    return makeTestServer({ open: deaf, secretKey });
  };
  /** How many of twelve concurrent attempts succeed. */
  const settled = async (act: (on: TestServer, at: number) => Promise<unknown>) => {
    const works = await everywhere(async (on, at) => {
      try {
        await act(on, at);
        return true;
      } catch (error) {
        if (!(error instanceof AppError)) throw error;
        return false;
      }
    });
    return works.filter(Boolean).length;
  };

  test("a node name is given once", async () => {
    const answers = await everywhere((on) => post(on, "nodes/", { name: "once" }));
    expect(statuses(answers)).toEqual({ 201: 1, 409: 11 });
  });

  test("a machine asks on one replica, is answered once on either, and registers on the other", async () => {
    const set = (node_approval: string) =>
      first.send("PATCH", "/api/org/acme/", { token: owner, body: { node_approval } });
    expect((await set("all")).status).toBe(200);
    const body = {
      name: "asked",
      ...(await makeKeys()),
      registration_token: await registrationToken(first, acme, { uses: 1 }),
    };
    const asked = await everywhere((on) => sendRegistration(on, "acme", body));
    expect(statuses(asked)).toEqual({ 202: 12 });
    const requests = `registration_requests WHERE state = 'waiting'`;
    expect(await count(requests)).toBe(1);
    const id = Number((await first.db.get("SELECT id FROM registration_requests"))?.["id"]);
    const verb = (at: number) => (at % 4 < 2 ? "approve" : "refuse");
    const answers = await everywhere((on, at) => post(on, `registrations/${id}/${verb(at)}/`, {}));
    expect(statuses(answers)).toEqual({ 204: 1, 409: 11 });
    const isApproved = verb(answers.findIndex(({ status }) => status === 204)) === "approve";
    const got = await sendRegistration(replicas[1] ?? first, "acme", body);
    expect(got.status).toBe(isApproved ? 201 : 403);
    expect((await set("none")).status).toBe(200);
  });

  test("a machine without a key asks on one replica, is confirmed once on either, and registers on the other", async () => {
    const keys = await makeKeys();
    const name = "keyless";
    const begun = await first.send("POST", "/api/enrollments/", { body: { name, machine: name, ...keys } });
    const { enrollment_token: registration_token, verification_uri } = v.parse(NewEnrollment, begun.json);
    const request = new URL(verification_uri).searchParams.get("request");
    const { cookie } = await signInBrowser(first);
    const confirm = (words: string) =>
      everywhere((on) => {
        const path = "/api/org/acme/enrollments/confirm/";
        return browserWith(on, cookie).send("POST", path, { body: { request, words } });
      });
    const words = wordsOfKey(fingerprintOfHostKey(keys.host_public_key)).join(" ");
    const counts = statuses(await confirm(words));
    expect([counts[204], (counts[404] ?? 0) + (counts[429] ?? 0)]).toEqual([1, 11]);
    const [, second = first] = replicas;
    const registered = await sendRegistration(second, "acme", { name, ...keys, registration_token });
    expect(registered.status).toBe(201);
  });

  test("a user is told once that nodes have to be confirmed, and a confirmation counts on all replicas", async () => {
    const { id } = await registerNode(first, acme, "confirmed-again");
    const { id: other } = await registerNode(first, acme, "not-confirmed");
    const own = "UPDATE nodes SET owner_id = 1, registered_at = registered_at - $1 WHERE id IN ($2, $3)";
    await first.db.write(async (tx) => {
      await tx.run("UPDATE organizations SET reauthenticate_days = 30 WHERE id = $1", [acme.id]);
      await tx.run(own, [300 * 86_400_000, id, other]);
    });
    const told = "events WHERE type = 'node.reauthentication_due'";
    await everywhere((on) => reauthenticate(on.app.services));
    expect(await count(told)).toBe(2);
    const { cookie } = await signInBrowser(first);
    const path = `/api/org/acme/nodes/${id}/reauthenticate/`;
    const answers = await everywhere((on) => browserWith(on, cookie).send("POST", path));
    expect(statuses(answers)).toEqual({ 204: 12 });
    await everywhere((on) => reauthenticate(on.app.services));
    expect(await count(told)).toBe(2);
    await first.db.write((tx) => tx.run("UPDATE organizations SET reauthenticate_days = NULL"));
  });

  test("an address is given once, requested or chosen", async () => {
    const asked = await everywhere((on, at) =>
      post(on, "nodes/", { name: `asked-${at}`, ip_address: "10.77.9.9" }),
    );
    expect(statuses(asked)).toEqual({ 201: 1, 409: 11 });
    const chosen = await everywhere((on, at) => post(on, "nodes/", { name: `chosen-${at}` }));
    expect(statuses(chosen)).toEqual({ 201: 12 });
    const twice =
      "(SELECT ip FROM nodes WHERE state <> 'revoked' GROUP BY org_id, ip HAVING count(*) > 1) twice";
    expect(await count(twice)).toBe(0);
  });

  test("a registration token is used as often as it allows", async () => {
    const token = await registrationToken(first, acme, { uses: 5 });
    const keys = await Promise.all(Array.from({ length: 12 }, () => makeKeys()));
    const answers = await everywhere((on, at) =>
      sendRegistration(on, "acme", { name: `used-${at}`, ...keys[at], registration_token: token }),
    );
    expect(statuses(answers)).toEqual({ 201: 5, 401: 7 });
  });

  test("a host key is registered once", async () => {
    const token = await registrationToken(first, acme, { uses: 20 });
    const keys = await makeKeys("twin");
    const answers = await everywhere((on) =>
      sendRegistration(on, "acme", { name: "twin", ...keys, registration_token: token }),
    );
    expect(answers.every(({ status }) => status === 201 || status === 429)).toBe(true);
    expect(await count("nodes WHERE host_public_key = $1", [keys.host_public_key])).toBe(1);
    expect(await count("registration_tokens WHERE used = 1 AND uses = 20")).toBe(1);
  });

  test("two organizations register the same names, addresses and keys, each its own", async () => {
    const other = await first.organization("neighbor");
    const keys = await makeKeys("both");
    const tokens = [await registrationToken(first, acme), await registrationToken(first, other)];
    const answers = await Promise.all(
      ["acme", "neighbor"].map((slug, at) =>
        sendRegistration(replicas[at] ?? first, slug, {
          name: "both",
          ...keys,
          ip_address: "10.77.8.8",
          registration_token: tokens[at],
        }),
      ),
    );
    expect(statuses(answers)).toEqual({ 201: 2 });
  });

  test("an email address has one user, a slug one organization", async () => {
    const user = { email: "one@example.org", password: "correct horse battery", isStaff: false };
    const users = await settled((on) => createUser(on.app.services, user, operator));
    expect([users, await count("users WHERE email = $1", [user.email])]).toEqual([1, 1]);
    const organizations = await settled((on) => on.organization("single"));
    expect([organizations, await count("organizations WHERE slug = 'single'")]).toEqual([1, 1]);
  });

  test("a user joins one organization at once; the others have to invite the user", async () => {
    await first.person("joins@example.org");
    const others = [await first.organization("left"), await first.organization("right")];
    const by = { role: "owner", actor: { kind: "person", id: 1, ip: null } } as const;
    for (const org of others) await first.join(org, "owner@example.org", "owner");
    const joined = await Promise.all(
      others.map((org, at) =>
        addMember(
          (replicas[at] ?? first).app.services,
          org,
          { email: "joins@example.org", role: "member" },
          by,
        ),
      ),
    );
    expect(joined.map(({ state }) => state).toSorted()).toEqual(["active", "invited"]);
  });

  test("one of the owners stays, and one of the staff users", async () => {
    const org = await first.organization("owned");
    const emails = Array.from({ length: 4 }, (_, at) => `owner-${at}@example.org`);
    for (const email of emails) {
      await first.person(email, { isStaff: true });
      await first.join(org, email, "owner");
    }
    const members = await first.db.all("SELECT id FROM memberships WHERE org_id = $1", [org.id]);
    await settled((on, at) =>
      removeMember(on.app.services, org, Number(members[at % 4]?.["id"]), { role: "owner", actor: operator }),
    );
    expect(await count("memberships WHERE org_id = $1", [org.id])).toBe(1);
    await settled((on, at) => setActive(on.app.services, emails[at % 4] ?? "", false, operator));
    expect(await count("users WHERE is_staff = 1 AND is_active = 1")).toBe(1);
  });

  test("a refresh token gives one pair, and its second use ends all that follow from it", async () => {
    await first.person("session@example.org");
    const { refresh } = pair(await signInTo(first, "session@example.org"));
    const use = (on: TestServer, token: string) =>
      on.send("POST", "/api/token/refresh/", { body: { refresh: token } });
    const answers = await everywhere(async (on) => {
      const answer = await use(on, refresh);
      // The winner goes on at once, while the others end the family.
      return answer.status === 200 ? [answer, await use(on, pair(answer).refresh)] : [answer];
    });
    expect(answers.flat().filter(({ status }) => status === 200).length).toBeLessThanOrEqual(2);
    const used = "t.family IN (SELECT family FROM refresh_tokens WHERE used_at IS NOT NULL)";
    const valid = "refresh_tokens t JOIN users u ON u.id = t.user_id WHERE u.email = 'session@example.org'";
    expect(await count(`${valid} AND t.revoked_at IS NULL AND ${used}`)).toBe(0);
  });

  test("a user has ten site files for phones within an hour, from all replicas together", async () => {
    const browsers = await Promise.all(replicas.map((each) => signInBrowser(each, "owner@example.org")));
    const answers = await everywhere(async (_, at) =>
      (browsers[at % 2] ?? browsers[0])?.send("POST", "/api/org/acme/phones/", {
        body: { name: `pixel${at}`, system: "ios", host_public_key: makeHostKey().publicPem },
      }),
    );
    expect(answers.filter((each) => each?.status === 201)).toHaveLength(10);
    expect(answers.filter((each) => each?.status === 429)).toHaveLength(2);
  });

  test("a group is not deleted while a node takes it", async () => {
    for (let turn = 0; turn < 4; turn++) {
      const group = `group-${turn}`;
      await post(first, "groups/", { name: group });
      await Promise.all([
        post(first, "nodes/", { name: `grouped-${turn}`, groups: [group] }),
        replicas[1]?.send("DELETE", `/api/org/acme/groups/${group}/`, { token: owner }),
      ]);
      expect(await count("node_groups WHERE name = $1", [group])).toBe(1);
    }
  });

  test("an organization has at most 20 webhooks", async () => {
    for (let turn = 0; turn < 2; turn++) {
      await everywhere((on) => post(on, "webhooks/", { url: "https://8.8.8.8/", events: ["*"] }));
    }
    expect(await count("webhooks WHERE org_id = $1", [acme.id])).toBe(20);
  });

  test("one CA rotation starts", async () => {
    const org = await first.organization("rotating");
    expect(await settled((on) => startRotation(on.app.services, org, operator))).toBe(1);
    expect(await count("authorities WHERE org_id = $1 AND state = 'next'", [org.id])).toBe(2);
  });

  test("each event becomes one delivery, and one replica claims it", async () => {
    const now = first.clock.ms;
    await everywhere((on) => queueEvents(on.db, now));
    const twice = "(SELECT event_id FROM deliveries GROUP BY webhook_id, event_id HAVING count(*) > 1) twice";
    expect(await count(twice)).toBe(0);
    const claimed = (await everywhere((on) => claimDue(on.db, now, new Set(), new Set())))
      .flat()
      .map(({ id }) => id);
    expect(claimed.length).toBe(new Set(claimed).size);
  });

  test("a browser's session counts on all replicas, and its end too where the notice has not arrived", async () => {
    await using deaf = await openDeaf();
    const { cookie } = await signInBrowser(first);
    const browser = browserWith(deaf, cookie);
    const whoAmI = async () => (await browser.send("GET", "/api/user/")).status;
    expect(await whoAmI()).toBe(200);
    const { cookie: another } = await signInBrowser(first);
    await browserWith(first, cookie).send("DELETE", "/api/session/");
    expect(await whoAmI()).toBe(401);
    expect((await browserWith(deaf, another).send("GET", "/api/user/")).status).toBe(200);
  });

  test("a write is refused once its caller's rights have ended, also where the notice has not arrived", async () => {
    await using deaf = await openDeaf();
    const { db } = first;
    const { token } = await createServiceToken(
      first.app.services,
      acme,
      { name: "ci", role: "admin" },
      {
        userId: null,
        actor: operator,
      },
    );
    const ended = await first.person("ended@example.org");
    await first.join(acme, "ended@example.org", "admin");
    const read = (caller: string) => deaf.send("GET", "/api/org/acme/groups/", { token: caller });
    const write = (caller: string, name: string) => post(deaf, "groups/", { name }, caller);
    for (const [at, caller] of [token, ended].entries()) {
      expect((await read(caller)).status).toBe(200);
      expect((await write(caller, `before-${at}`)).status).toBe(201);
    }
    const row = await db.get("SELECT id FROM service_tokens ORDER BY id DESC LIMIT 1");
    await revokeToken(first.app.services, acme, "service_token", Number(row?.["id"]), operator);
    await setActive(first.app.services, "ended@example.org", false, operator);
    for (const [at, caller] of [token, ended].entries()) {
      // Reads may be answered from memory until the notice arrives; this shows that the caller is cached.
      expect((await read(caller)).status).toBe(200);
      expect((await write(caller, `after-${at}`)).status).toBe(401);
    }
  });

  test("a node whose renewal is due gets one certificate from two replicas", async () => {
    const org = await first.organization("renewing");
    for (const name of ["one", "two", "three"]) {
      const node = await registerNode(first, org, name);
      await first.db.write((tx) =>
        tx.run("UPDATE certificates SET renew_at = 0 WHERE node_id = $1 AND kind = 'overlay'", [node.id]),
      );
      const renew = (on: TestServer) => on.app.services.renewals.ensure(org.id, node.id, { wait: true });
      await Promise.all(replicas.map(renew));
      expect(await count("certificates WHERE node_id = $1 AND kind = 'overlay'", [node.id])).toBe(2);
    }
  });

  test("wrong passwords count on all replicas", async () => {
    await first.person("guessed@example.org");
    const guess = (on: TestServer) => signInTo(on, "guessed@example.org", "wrong password", "198.51.100.7");
    const [, second = first] = replicas;
    for (let at = 0; at < 5; at++) expect((await guess(first)).status).toBe(401);
    for (let at = 0; at < 5; at++) expect((await guess(second)).status).toBe(401);
    // The tenth is told within a moment; then both refuse, and a known address of another network is still admitted.
    // The pause keeps the number of guesses low where notices are slow.
    while ((await guess(first)).status !== 429) await Bun.sleep(500);
    while ((await guess(second)).status !== 429) await Bun.sleep(500);
    const guesses = await count(
      "events WHERE type = 'security.login_failed' AND org_id IS NULL AND subject LIKE '%guessed@%'",
    );
    expect(guesses).toBeLessThan(15);
    expect((await signInTo(second, "guessed@example.org", undefined, "203.0.113.9")).status).toBe(200);
    // No notice holds the address.
    expect(await count("notices WHERE channel = 'throttle' AND payload LIKE '%guessed%'")).toBe(0);
    expect(await count("notices WHERE channel = 'throttle'")).toBeGreaterThan(0);
  });

  test("versions rise by one for each change, and no chain of events forks", async () => {
    const slugs = ["acme", "neighbor", "left", "right"];
    await everywhere(async (on, at) => {
      for (let turn = 0; turn < 5; turn++) {
        const org = { id: (at + turn) % 2 === 0 ? acme.id : acme.id + 1 };
        await on.db.writeFor({ org: org.id }, async (tx) => {
          const version = await raiseConfigVersion(tx, org.id);
          const subject = `version/${version}`;
          await record(tx, {
            orgId: org.id,
            at: turn,
            type: "organization.updated",
            actor: operator,
            subject,
          });
        });
        // An event of the operator's own chain.
        await signInTo(on, "stranger@example.org", "wrong password", `192.0.2.${10 + at}`);
      }
    });
    const twice = `(SELECT subject FROM events WHERE subject LIKE 'version/%'
      GROUP BY org_id, subject HAVING count(*) > 1) twice`;
    expect(await count(twice)).toBe(0);
    expect(await count("events WHERE subject LIKE 'version/%'")).toBe(60);
    const chains = await verifyChains(first.db, secretKey);
    expect(chains.map(({ organization }) => organization)).toEqual(expect.arrayContaining([null, ...slugs]));
    expect(chains.filter(({ breaks }) => breaks.length > 0)).toEqual([]);
  });

  test("a CA that another organization gets at this moment does not become an offline CA", async () => {
    const [, second = first] = replicas;
    const other = await first.organization("other-ca", "10.98.0.0/16");
    const now = first.clock.ms;
    const [notBefore, notAfter] = [Math.floor(now / 1000) - 600, Math.floor(now / 1000) + 86_400];
    const { certificate } = makeCa({ version: 1, name: "both", notBefore, notAfter });
    const pem = encodePem(certificate);
    const inside = Promise.withResolvers<void>();
    let isOver = false;
    const waiting = "SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    const held = first.db.writeFor({ org: other.id }, async (tx) => {
      await authorities.insert(tx, {
        orgId: other.id,
        kind: "overlay",
        version: 1,
        fingerprint: fingerprint(certificate),
        certificate: pem,
        privateKeySealed: "",
        state: "former",
        notBefore: notBefore * 1000,
        notAfter: notAfter * 1000,
        createdAt: now,
        offline: true,
      });
      inside.resolve();
      await until(async () => isOver || Number((await first.db.get(waiting))?.["n"]) > 0);
    });
    await inside.promise;
    const admitted = () => Promise.resolve();
    const added = addOfflineAuthority(second.app.services, acme, pem, operator, admitted).finally(
      () => (isOver = true),
    );
    expect(await Promise.all([added.catch((error: unknown) => String(error)), held])).toEqual([
      expect.stringContaining("belongs to another organization"),
      undefined,
    ]);
  });
});
