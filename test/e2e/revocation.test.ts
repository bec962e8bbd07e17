// Peers cut off a revoked node, also one that ignores the order; an honest node stops itself. A revoked node cannot
// return with its old token, certificate, keys or directory.

import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { copyFileSync, cpSync, existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { makeNodeKey, publicOfHostKey } from "../../src/pki/keys.ts";
import { formatPem } from "../../src/pki/pem.ts";
import { makeCsr } from "../../src/pki/x509.ts";
import { ErrorBody } from "../../src/protocol/error-body.ts";
import { Node } from "../../src/protocol/node.ts";
import { paths } from "../support/paths.ts";
import { Credentials } from "../../src/protocol/organization-files.ts";
import { buildAgent, runAgent, startControlPlane } from "../support/agent.ts";
import { command, enginesOf, startDaemon, untilStatus } from "../support/daemon.ts";
import { asRoot, describeEngines, describeEveryEngine, engineNamed } from "../support/engines.ts";
import { makeMembers, until } from "../support/members.ts";
import { makeLan, startPing } from "../support/namespaces.ts";
import { makeOrganization, signIn, startEngine } from "../support/overlay.ts";
import { figures, revocationBars, revokeOnce, silence, type Trial } from "../support/revocation.ts";
import { inFull } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const rounds = Number(process.env["REVOCATIONS"] ?? (inFull ? 20 : 2));
/** Most of the time is waiting. */
const testBeside = inFull ? test : test.concurrent;

asRoot("revocation", () => {
  testBeside(
    "is repeated after a backup from before it was restored on another machine, before the server starts there",
    async () => {
      using directory = temporaryDirectory();
      using lan = makeLan(["lighthouse", "peer", "victim"]);
      const [former, data] = [join(directory.path, "former"), join(directory.path, "server")];
      const plane = await startControlPlane(former);
      const acme = await makeOrganization(plane);
      await using scene = await makeMembers(acme, lan, directory.path, engineNamed("sid").nebula);
      const [lighthouse, peer, victim] = scene.members;
      if (lighthouse === undefined || peer === undefined || victim === undefined)
        throw new Error("No members");
      const backup = join(directory.path, "backup");
      expect((await plane.admin(["backup", backup])).status).toBe(0);
      victim.daemon.signal("SIGKILL");
      await victim.daemon.exited;
      const pings = [lighthouse, peer].map(({ host }) => startPing(host, victim.ip, 200));
      await Promise.all(pings.map((ping) => ping.reply(20_000)));
      expect((await plane.admin(["node", "revoke", "acme", "victim"])).status).toBe(0);
      await silence(pings);
      // The machine is lost. The new one has the backup and the key.
      await plane.stop();
      mkdirSync(data, { mode: 0o700 });
      copyFileSync(join(former, "secret.key"), join(data, "secret.key"));
      const restored = await runAgent(["admin", "restore", backup, "--data-dir", data]);
      expect(restored).toMatchObject({
        status: 0,
        stdout: expect.stringMatching(/The data is of \S+Z\. .*revoke and delete it again before you start/),
      });
      const before = pings.map(({ replies }) => replies.length);
      const again = await runAgent(["admin", "node", "revoke", "acme", "victim", "--data-dir", data]);
      expect(again.status).toBe(0);
      await using elsewhere = await startControlPlane(data, [], Number(new URL(plane.url).port));
      const { api } = await signIn(elsewhere, "acme");
      const applied = async () => {
        const nodes = v.parse(v.array(Node), await (await api("GET", paths.nodes("acme"))).json());
        const others = nodes.filter(({ name }) => name !== "victim");
        return others.every((each) => each.applied_config_version === each.config_version);
      };
      await until("the files of the new machine", applied, 90_000);
      await Bun.sleep(3000);
      expect(pings.map(({ replies }) => replies.length)).toEqual(before);
      await Promise.all(pings.map((ping) => ping.stop()));
      await startPing(lighthouse.host, peer.ip).reply(10_000);
    },
    300_000,
  );

  describeEveryEngine("a node", ({ nebula, version }, inPart) => {
    testBeside(
      "whose daemon was killed is cut off by its peers; an honest node stops itself",
      async () => {
        using directory = temporaryDirectory();
        using lan = makeLan(["lighthouse", "peer", "victim"]);
        await using plane = await startControlPlane(join(directory.path, "server"));
        const acme = await makeOrganization(plane);
        await using scene = await makeMembers(acme, lan, directory.path, nebula);
        const [lighthouse, peer, victim] = scene.members;
        if (lighthouse === undefined || peer === undefined || victim === undefined)
          throw new Error("No members");
        const trials: Trial[] = [];
        for (let round = 0; round < (inPart ? 1 : rounds); round++)
          trials.push(await revokeOnce(acme, victim, [lighthouse, peer]));
        process.stderr.write(`engine ${version}: ${figures(trials)}\n`);
        for (const each of trials) {
          expect(each.reloadMs).toBeLessThan(revocationBars.reloadMs);
          expect(each.lastPingMs).toBeLessThan(revocationBars.lastPingMs);
        }

        expect(enginesOf(victim.places)).toHaveLength(1);
        expect((await acme.api("DELETE", paths.node("acme", victim.id))).status).toBe(204);
        const from = performance.now();
        await until("the end of the engine", () => enginesOf(victim.places).length === 0, 20_000);
        process.stderr.write(`an honest node stopped after ${(performance.now() - from).toFixed(0)} ms\n`);
        await untilStatus(victim.places, "acme", ({ state }) => state === "revoked");
      },
      inFull ? 900_000 : 180_000,
    );
  });

  describeEngines("a node", ({ nebula }) => {
    testBeside(
      "cannot return with its old token, certificate, keys or directory",
      async () => {
        using directory = temporaryDirectory();
        using lan = makeLan(["lighthouse", "peer", "victim"]);
        const data = join(directory.path, "server");
        await using plane = await startControlPlane(data);
        const acme = await makeOrganization(plane);
        const token = await acme.makeToken(["--uses", "9"]);
        await using scene = await makeMembers(acme, lan, directory.path, nebula);
        const [, peer, victim] = scene.members;
        if (peer === undefined || victim === undefined) throw new Error("No members");
        const own = join(victim.places.configRoot, "acme");
        const backup = join(directory.path, "backup");
        const filter = (path: string) => !path.endsWith("ctl.sock");
        cpSync(own, backup, { recursive: true, verbatimSymlinks: true, filter });
        const text = (name: string) => readFileSync(join(backup, name), "utf8");
        const { api_token } = v.parse(
          v.pipe(v.string(), v.parseJson(), Credentials),
          text("credentials.json"),
        );
        using db = new Database(join(data, "control.db"), { readonly: true });
        const signed = () => JSON.stringify(db.query("SELECT count(*) AS n FROM certificates").get());

        expect((await acme.api("DELETE", paths.node("acme", victim.id))).status).toBe(204);
        await untilStatus(victim.places, "acme", ({ state }) => state === "revoked");
        victim.daemon.signal("SIGTERM");
        await victim.daemon.exited;
        const before = signed();
        const refused = async (method: string, path: string, body?: unknown, bearer?: string) => {
          const answer = await acme.api(method, path, body, bearer);
          return `${answer.status} ${v.parse(ErrorBody, await answer.json()).code}`;
        };

        const beat = { version: "0.1.0", uptime: 1 };
        expect(await refused("POST", paths.checkin("acme", victim.id), beat, api_token)).toBe(
          "403 node_revoked",
        );
        expect(await refused("GET", paths.downloadConfig("acme", victim.id), undefined, api_token)).toBe(
          "403 node_revoked",
        );
        expect(await refused("POST", paths.renewCert("acme", victim.id), {})).toBe("403 node_revoked");

        const host_public_key = formatPem("NEBULA X25519 PUBLIC KEY", publicOfHostKey(text("host.key")));
        const same = await makeCsr({ privateKeyPem: text("node.key"), name: "victim" });
        const other = await makeCsr({ privateKeyPem: makeNodeKey().privatePem, name: "victim" });
        for (const name of ["victim", "another"]) {
          for (const registration of [
            { name, host_public_key, node_csr: same },
            { name, host_public_key, node_csr: other },
            { name, host_public_key },
          ]) {
            const path = paths.register("acme");
            const byToken = { ...registration, registration_token: token };
            expect(await refused("POST", path, registration)).toMatch(/^(403 node_revoked|409 conflict)$/);
            expect(await refused("POST", path, byToken, "")).toMatch(/^(401|403 node_revoked|409 conflict)/);
          }
        }
        expect(signed()).toBe(before);

        // The old directory with an engine alone, without a daemon.
        rmSync(own, { recursive: true });
        cpSync(backup, own, { recursive: true, verbatimSymlinks: true });
        expect(existsSync(join(own, "auth-revoked.json"))).toBe(false);
        {
          using engine = await startEngine(victim.host, nebula, own);
          const pings = [startPing(victim.host, peer.ip), startPing(peer.host, victim.ip)];
          const heard = await Promise.any(pings.map((ping) => ping.reply(6000))).catch(() => "silence");
          expect(heard).toBe("silence");
          expect(engine.log()).not.toContain("panic");
          await Promise.all(pings.map((ping) => ping.stop()));
        }
        // With a daemon: it gets the order and stops.
        victim.daemon = await startDaemon(victim.host, victim.places);
        await untilStatus(victim.places, "acme", ({ state }) => state === "revoked", 20_000);
        await until("the end of the engine", () => enginesOf(victim.places).length === 0);
        expect(existsSync(join(own, "auth-revoked.json"))).toBe(true);
        expect((await command(victim.places, ["start", "acme"])).status).toBe(7);
        expect(signed()).toBe(before);
      },
      240_000,
    );
  });
});
