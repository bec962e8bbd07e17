// Certificates are renewed under running tunnels without a lost ping and without new blocklist entries. A certificate
// with fewer rights blocks the previous one. A node that was off until its certificate expired returns with its token.

import { expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { decodeBundle } from "../../src/pki/bundle.ts";
import { fingerprint } from "../../src/pki/nebula.ts";
import { paths } from "../support/paths.ts";
import { openAuthorities } from "../../src/server/certificates/authorities.ts";
import { openData } from "../../src/server/store/data-directory.ts";
import { issueOverlay, readIssuingOrg } from "../../src/server/certificates/issue.ts";
import { findNode } from "../../src/server/store/nodes.ts";
import type { Transaction } from "../../src/server/store/database.ts";
import { raiseOwnVersion } from "../../src/server/store/versions.ts";
import { realSystem } from "../../src/base/system.ts";
import { buildAgent, runAgent, startControlPlane } from "../support/agent.ts";
import { command, startDaemon, untilStatus } from "../support/daemon.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { makeMembers, nodesOf, pingAll, until, type Member } from "../support/members.ts";
import { lost, makeLan, startPing } from "../support/namespaces.ts";
import { makeOrganization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const day = 86_400_000;
const file = ({ places }: Member, name: string) =>
  readFileSync(join(places.configRoot, "acme", name), "utf8");
const certificateOf = (member: Member) => decodeBundle(file(member, "host.crt"))[0];
const printOf = (member: Member) => decodeBundle(file(member, "host.crt")).map(fingerprint).join();
const Doctor = v.object({
  checks: v.array(v.object({ id: v.string(), verdict: v.string(), remedy: v.optional(v.string()) })),
});
const Config = v.object({ pki: v.object({ blocklist: v.array(v.string()) }) });
const blockedBy = (member: Member) =>
  v.parse(Config, Bun.YAML.parse(file(member, "config.yml"))).pki.blocklist;

type Store = Awaited<ReturnType<typeof openData>>;

async function onData(data: string, work: (store: Store) => Promise<void>): Promise<void> {
  const store = await openData({ dataDirectory: data }, "visitor", { ...realSystem(), env: {} });
  await work(store);
  await store.db.close();
}

/**
 * Makes the server sign a certificate that ends `leftMs` from now, as one of a node that was offline during its renewal.
 */
async function almostOver({ db, secretKey, clock }: Store, id: number, leftMs: number): Promise<void> {
  const real = realSystem();
  const system = { ...real, now: () => real.now() - 90 * day + leftMs };
  const authorities = openAuthorities({ secretKey, clock });
  await db.write(async (tx) => {
    const org = await readIssuingOrg(tx, 1);
    await issueOverlay(tx, org, await findNode(tx, 1, id), { authorities, system });
    await renewAt(tx, id, real.now() + day);
  });
}

async function renewAt(tx: Transaction, id: number, at: number): Promise<void> {
  await tx.run("UPDATE certificates SET renew_at = $2 WHERE node_id = $1 AND state = 'current'", [id, at]);
  await tx.run("UPDATE nodes SET renew_at = $2 WHERE id = $1", [id, at]);
  await raiseOwnVersion(tx, 1, id);
}

asRoot("renewal", () => {
  describeEngines("under running tunnels", ({ nebula }) => {
    test("loses no ping and blocks nothing; removing a group blocks the previous certificate", async () => {
      using directory = temporaryDirectory();
      using lan = makeLan(["lighthouse", "alpha", "beta"]);
      await using plane = await startControlPlane(join(directory.path, "server"));
      const acme = await makeOrganization(plane);
      await using scene = await makeMembers(acme, lan, directory.path, nebula);
      const { members } = scene;
      const pings = await pingAll(members);
      const renew = async (chosen: readonly Member[]) => {
        const former = chosen.map(printOf);
        const answers = await Promise.all(
          chosen.map((each) => acme.api("POST", paths.renewCert("acme", each.id), {})),
        );
        expect(answers.map(({ status }) => status)).toEqual(chosen.map(() => 200));
        await until("the new certificates", () => chosen.every((each, at) => printOf(each) !== former[at]));
        await Bun.sleep(4000);
      };
      for (const each of members) await renew([each]);
      await renew(members);
      await Promise.all(pings.map((ping) => ping.reply(20_000)));
      await Promise.all(pings.map((ping) => ping.stop()));
      expect(pings.map(lost)).toEqual(pings.map(() => []));
      expect(members.map(blockedBy)).toEqual(members.map(() => []));

      const [, alpha, beta] = members;
      if (alpha === undefined || beta === undefined) throw new Error("No members");
      expect((await acme.api("POST", "/api/org/acme/groups/", { name: "web" })).status).toBe(201);
      const setGroups = async (groups: string[]) =>
        expect((await acme.api("PATCH", paths.node("acme", beta.id), { groups })).status).toBe(200);
      await setGroups(["web"]);
      await until("the group", () => certificateOf(beta)?.groups.join() === "web");
      // With more rights, the previous certificate stays valid.
      await Bun.sleep(1000);
      expect(blockedBy(alpha)).toEqual([]);
      const former = printOf(beta);
      await setGroups([]);
      await until("the former certificate on the blocklist", () => blockedBy(alpha).includes(former));
      expect(blockedBy(alpha)).not.toContain(printOf(beta));
      const again = startPing(alpha.host, beta.ip);
      await again.reply(30_000);
      await again.stop();
    }, 180_000);

    test("one that ends soon, and one that has expired, is renewed by the line that doctor prints", async () => {
      using directory = temporaryDirectory();
      using lan = makeLan(["lighthouse", "alpha"]);
      const data = join(directory.path, "server");
      await using plane = await startControlPlane(data);
      const acme = await makeOrganization(plane);
      await using scene = await makeMembers(acme, lan, directory.path, nebula);
      const [, alpha] = scene.members;
      if (alpha === undefined) throw new Error("No member");
      const { host, places } = alpha;
      const examine = async () => {
        const { stdout } = await runAgent(["doctor", "--json", ...places.flags], { inside: host.inside });
        const { checks } = v.parse(v.pipe(v.string(), v.parseJson(), Doctor), stdout);
        return checks.filter(({ id, verdict }) => id === "certificate" && verdict !== "ok");
      };
      expect(await examine()).toEqual([]);
      for (const [leftMs, verdict] of [
        [5 * day, "warn"],
        [12_000, "fail"],
      ] as const) {
        const former = printOf(alpha);
        await onData(data, (store) => almostOver(store, alpha.id, leftMs));
        await until("the short certificate", () => printOf(alpha) !== former);
        const { notAfter = 0 } = certificateOf(alpha) ?? {};
        if (verdict === "fail") {
          await until("its end", () => Date.now() / 1000 > notAfter + 1);
          const { stdout } = await command(places, ["status"]);
          expect(stdout).toContain("The certificate has expired: `agent sync-config --org-slug acme`");
        }
        const found = await examine();
        expect(found).toMatchObject([{ verdict, remedy: "agent sync-config" }]);
        await onData(data, ({ db }) => db.write((tx) => renewAt(tx, alpha.id, Date.now() - day)));
        const words = (found[0]?.remedy ?? "").split(" ").slice(1);
        expect((await command(places, words)).status).toBe(0);
        expect(await examine()).toEqual([]);
        expect((await command(places, ["status"])).stdout).not.toContain("has expired");
      }
    }, 240_000);

    test("a node that was off until its certificate expired returns with its token alone", async () => {
      using directory = temporaryDirectory();
      using lan = makeLan(["lighthouse", "alpha"]);
      const data = join(directory.path, "server");
      await using plane = await startControlPlane(data);
      const acme = await makeOrganization(plane);
      await using scene = await makeMembers(acme, lan, directory.path, nebula);
      const [lighthouse, alpha] = scene.members;
      if (lighthouse === undefined || alpha === undefined) throw new Error("No members");
      const former = printOf(alpha);
      await onData(data, (store) => almostOver(store, alpha.id, 12_000));
      const own = join(alpha.places.configRoot, "acme");
      await until("the short certificate", () => printOf(alpha) !== former);
      // A daemon that is stopped during the change rolls back.
      await until("its reload", () => existsSync(join(own, "current/taken-up")));
      alpha.daemon.signal("SIGTERM");
      await alpha.daemon.exited;
      const { notAfter = 0 } = certificateOf(alpha) ?? {};
      await until("its end", () => Date.now() / 1000 > notAfter + 1);
      const refused = Bun.spawnSync([nebula, "-test", "-config", join(own, "config.yml")]);
      expect(refused.exitCode).not.toBe(0);
      // The certificate that it would have now.
      await onData(data, ({ db }) => db.write((tx) => renewAt(tx, alpha.id, notAfter * 1000 - 30 * day)));

      alpha.daemon = await startDaemon(alpha.host, alpha.places);
      await untilStatus(alpha.places, "acme", ({ state }) => state === "running", 40_000);
      const ping = startPing(lighthouse.host, alpha.ip);
      await ping.reply(30_000);
      await ping.stop();
      expect(certificateOf(alpha)?.notAfter).toBeGreaterThan(Date.now() / 1000 + 80 * 86_400);
      const shown = (await nodesOf(acme)).find(({ id }) => id === alpha.id);
      expect(shown?.certificate?.fingerprint).toBe(printOf(alpha));
    }, 240_000);
  });
});
